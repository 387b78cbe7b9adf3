"""Handing a hand on to another session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.handover import Generations, HandOver
from services.hands.hand import Hand
from services.hands.lifecycle import Unobserved
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

GIVER, RECEIVER = "sesn_giver", "sesn_receiver"
GIVEN = HandOver(GIVER, "build", RECEIVER, "tools")


def ask(
    world: World, session_id: str, name: str, call_id: str = "c1", generation: int = 1
) -> asyncio.Task[ExecuteResponse]:
    execute = world.executor.execute(
        session_id, call_id, generation, "bash", json.dumps({"command": "x"}), name=name
    )
    return asyncio.create_task(execute)


async def prepared(world: World) -> Hand:
    """The giver's hand. The receiver has been seen, too."""
    await world.executor.provision(RECEIVER, 1)
    hand, _ = await world.executor.provision(GIVER, 1, name="build")
    (world.directory / "workspaces/sesn_giver@build/workspace/file").write_text("work")
    return hand


async def hand_over(
    world: World, handover: HandOver = GIVEN, giver: int = 1, receiver: int = 0
) -> Hand | None:
    return await world.executor.hand_over(handover, Generations(giver, receiver), "wrkspc_default")


async def refusal(attempt: Any) -> DroverError:
    with pytest.raises(DroverError) as refused:
        await attempt
    return refused.value


async def answer(world: World, number: int) -> None:
    sandbox = world.backend.launched[number]
    async with asyncio.timeout(30):
        sandbox.answer(await sandbox.frames.get(), "out")


async def test_sandbox_and_files_go_along_and_the_receivers_calls_run_there(world: World) -> None:
    hand = await prepared(world)
    assert await hand_over(world) is hand
    asked = ask(world, RECEIVER, "tools")
    await answer(world, 1)
    await asked
    assert len(world.backend.launched) == 2
    moved = world.workspaces.find("sesn_receiver@tools")
    assert moved is not None
    assert (moved.root / "workspace/file").read_text() == "work"
    assert world.workspaces.find("sesn_giver@build") is None


async def test_givers_later_calls_are_refused_and_nothing_is_recorded(world: World) -> None:
    await prepared(world)
    await hand_over(world)
    for attempt in (ask(world, GIVER, "build"), world.executor.provision(GIVER, 1, name="build")):
        refused = await refusal(attempt)
        assert refused.reason is Reason.ARCHIVED
        assert refused.metadata["error_code"] == "hand_handed_over"
        assert "the hand build was handed over to session sesn_receiver" in str(refused)
    assert (GIVER, "c1") not in world.journal.calls
    assert len(world.backend.launched) == 2
    await world.executor.provision(GIVER, 1)  # its others are its


async def test_givers_calls_are_refused_by_the_next_process_too(world: World) -> None:
    await prepared(world)
    await hand_over(world)
    await world.restart()
    assert (await refusal(ask(world, GIVER, "build"))).reason is Reason.ARCHIVED
    hand, _ = await world.executor.provision(RECEIVER, 1, name="tools")
    assert world.backend.launched[-1].spec.volume.root.name == "sesn_receiver@tools"
    assert hand.id == world.backend.launched[-1].spec.hand_id


async def test_only_sessions_that_gave_something_away_are_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.custody.recover()
    looked_up: list[str] = []
    find = world.handovers.find

    async def counting(session_id: str, hand: str) -> HandOver | None:
        looked_up.append(session_id)
        return await find(session_id, hand)

    await prepared(world)
    monkeypatch.setattr(world.handovers, "find", counting)
    await world.executor.provision("sesn_other", 1)
    assert looked_up == []
    await hand_over(world)
    assert (await refusal(world.executor.provision(GIVER, 1, name="build"))).reason is (
        Reason.ARCHIVED
    )


async def test_result_recorded_before_is_still_the_givers_to_read(world: World) -> None:
    await prepared(world)
    asked = ask(world, GIVER, "build")
    await answer(world, 1)
    await asked
    await hand_over(world)
    again = await ask(world, GIVER, "build")
    assert (again.content[0].text.text, again.replayed) == ("out", True)


async def test_call_under_way_refuses_it_and_is_named(world: World) -> None:
    await prepared(world)
    asked = ask(world, GIVER, "build", "sevt_running")
    await eventually(lambda: not world.backend.launched[1].frames.empty())
    refused = await refusal(hand_over(world))
    assert refused.reason is Reason.SESSION_RUNNING
    assert refused.metadata["error_code"] == "hand_busy"
    assert "the call sevt_running is under way" in str(refused)
    await answer(world, 1)
    await asked
    await hand_over(world)


async def test_hand_that_is_being_made_ready_is_not_handed_over(world: World) -> None:
    await world.executor.provision(RECEIVER, 1)
    world.backend.hold()
    made = asyncio.create_task(world.executor.provision(GIVER, 1, name="build"))
    await eventually(lambda: world.backend.starts_now)
    assert (await refusal(hand_over(world))).reason is Reason.SESSION_RUNNING
    world.backend.let_go()
    await made
    await hand_over(world)


@pytest.mark.parametrize("late", [(GIVER, "build"), (RECEIVER, "tools")])
async def test_hand_whose_start_outlives_who_asked_for_it_is_not_handed_over(
    world: World, late: tuple[str, str]
) -> None:
    await prepared(world)
    await world.executor.release(*late)
    world.backend.hold()
    made = asyncio.create_task(world.executor.provision(late[0], 1, name=late[1]))
    await eventually(lambda: world.backend.starts_now)
    made.cancel()
    await asyncio.wait([made])
    assert (await refusal(hand_over(world))).metadata["error_code"] == "hand_busy"
    world.backend.let_go()
    await eventually(lambda: world.pool.has("@".join(late)))
    assert world.workspaces.find("sesn_giver@build") is not None


async def test_calls_that_come_meanwhile_are_to_be_asked_for_again(world: World) -> None:
    await prepared(world)
    world.handovers.hold = asyncio.Event()
    moving = asyncio.create_task(hand_over(world))
    await eventually(lambda: world.handovers.held)
    for session_id, name in ((GIVER, "build"), (RECEIVER, "tools")):
        refused = await refusal(ask(world, session_id, name))
        assert refused.reason is Reason.UNAVAILABLE
        assert refused.retry_after is not None
    assert (await refusal(world.executor.release(RECEIVER))).reason is Reason.UNAVAILABLE
    world.handovers.hold.set()
    await moving
    await world.executor.provision(RECEIVER, 1, name="tools")


async def test_hand_over_goes_on_when_its_caller_goes_away(world: World) -> None:
    await prepared(world)
    world.handovers.hold = asyncio.Event()
    moving = asyncio.create_task(hand_over(world))
    await eventually(lambda: world.handovers.held)
    moving.cancel()
    await asyncio.wait([moving])
    world.handovers.hold.set()
    await eventually(lambda: world.workspaces.find("sesn_receiver@tools"))


@pytest.mark.parametrize(
    ("handover", "giver", "receiver", "reason"),
    [
        (GIVEN, 0, 0, Reason.LEASE_LOST),
        (GIVEN, 2, 0, None),
        (GIVEN, 1, 0, None),
        (HandOver(GIVER, "none", RECEIVER, "tools"), 1, 0, Reason.NOT_FOUND),
        (HandOver(GIVER, "build", RECEIVER, ""), 1, 0, Reason.ALREADY_EXISTS),
        (HandOver(GIVER, "build", "sesn_unseen", ""), 1, 0, Reason.NOT_FOUND),
        (HandOver(GIVER, "build", GIVER, "build"), 1, 0, Reason.INVALID_ARGUMENT),
        (HandOver(GIVER, "build", GIVER, "other"), 1, 1, None),
    ],
)
async def test_only_what_is_there_is_handed_over_and_only_by_who_may(
    world: World, handover: HandOver, giver: int, receiver: int, reason: Reason | None
) -> None:
    hand = await prepared(world)
    if reason is None:
        assert await hand_over(world, handover, giver, receiver) is hand
        return
    assert (await refusal(hand_over(world, handover, giver, receiver))).reason is reason
    assert (await world.executor.provision(GIVER, 1, name="build"))[0] is hand


async def test_older_lease_of_the_receiver_hands_nothing_over(world: World) -> None:
    await prepared(world)
    await world.executor.provision(RECEIVER, 5)
    assert (await refusal(hand_over(world, GIVEN, 1, 4))).reason is Reason.LEASE_LOST
    await hand_over(world, GIVEN, 1, 5)


async def test_hand_over_fences_older_leases_of_both(world: World) -> None:
    await prepared(world)
    await hand_over(world, GIVEN, 2, 2)
    for session_id in (GIVER, RECEIVER):
        attempts = (
            world.executor.provision(session_id, 1),
            world.executor.fence(session_id, 1),
            ask(world, session_id, "", "c9"),
        )
        for attempt in attempts:
            assert (await refusal(attempt)).reason is Reason.LEASE_LOST


async def test_repeated_request_is_a_success_and_another_receiver_is_not(world: World) -> None:
    hand = await prepared(world)
    assert await hand_over(world) is hand
    assert await hand_over(world) is hand
    refused = await refusal(hand_over(world, HandOver(GIVER, "build", RECEIVER, "more")))
    assert refused.metadata["error_code"] == "hand_handed_over"


async def test_hand_that_is_handed_back_is_the_givers_again(world: World) -> None:
    hand = await prepared(world)
    await hand_over(world)
    back = HandOver(RECEIVER, "tools", GIVER, "build")
    assert await hand_over(world, back) is hand
    assert (await world.executor.provision(GIVER, 1, name="build"))[0] is hand
    assert (await refusal(ask(world, RECEIVER, "tools"))).reason is Reason.ARCHIVED
    assert await hand_over(world) is hand


async def test_purge_of_the_giver_leaves_the_hand_to_the_receiver(world: World) -> None:
    hand = await prepared(world)
    await hand_over(world)
    await world.executor.release(GIVER)
    await world.executor.purge(GIVER, 1)
    assert (await world.executor.provision(RECEIVER, 1, name="tools"))[0] is hand
    assert world.workspaces.find("sesn_receiver@tools") is not None


@pytest.mark.parametrize("step", ["before begin", "begin", "before settle", "settle"])
async def test_store_that_fails_on_the_way_leaves_exactly_one_with_the_hand(
    world: World, step: str
) -> None:
    hand = await prepared(world)
    world.handovers.fail[step] = DroverError(Reason.UNAVAILABLE, "the database is away")
    assert (await refusal(hand_over(world))).reason is Reason.UNAVAILABLE
    for session_id, name in ((GIVER, "build"), (RECEIVER, "tools")):
        assert (await refusal(ask(world, session_id, name))).reason is Reason.UNAVAILABLE
    await world.custody.tend()
    if step == "before begin":
        assert (await world.executor.provision(GIVER, 1, name="build"))[0] is hand
        made, existing = await world.executor.provision(RECEIVER, 1, name="tools")
        assert (made is hand, existing) == (False, False)
    else:
        assert (await refusal(ask(world, GIVER, "build"))).reason is Reason.ARCHIVED
        assert (await world.executor.provision(RECEIVER, 1, name="tools"))[0] is hand


async def test_files_that_cannot_be_moved_yet_are_moved_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(world)

    async def fails(where: str, to: str) -> None:
        raise OSError(5, f"{where} {to}")

    with monkeypatch.context() as patched:
        patched.setattr(world.workspaces, "move", fails)
        with pytest.raises(OSError, match="sesn_giver@build sesn_receiver@tools"):
            await hand_over(world)
        await world.custody.tend()
        assert (await refusal(ask(world, RECEIVER, "tools"))).reason is Reason.UNAVAILABLE
    await world.custody.tend()
    await world.executor.provision(RECEIVER, 1, name="tools")
    assert world.workspaces.find("sesn_receiver@tools") is not None


class Waits(Unobserved):
    """Has a lot to do with the giver's hand."""

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def leaves(self, where: str) -> None:
        if where == GIVEN.where:
            self.begun.set()
            await self.gate.wait()


async def test_what_is_to_be_done_with_one_hand_before_it_goes_holds_up_no_other(
    world: World,
) -> None:
    waits = Waits()
    await world.restart(lifecycle=waits)
    hand = await prepared(world)
    other, _ = await world.executor.provision("sesn_other", 1)
    async with asyncio.timeout(30):
        slow = asyncio.create_task(hand_over(world))
        await waits.begun.wait()
        assert await hand_over(world, HandOver("sesn_other", "", RECEIVER, "more")) is other
        assert (await refusal(ask(world, GIVER, "build"))).reason is Reason.UNAVAILABLE
        waits.gate.set()
        assert await slow is hand
