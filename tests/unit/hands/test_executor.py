from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    ExecuteResponse,
)
from services.hands.domain.execution import SANDBOX_LOST, SHELL_LOST
from services.hands.pool import PoolSize
from tests.doubles.hands_backend import ScriptedSandbox
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

SESSION = "sesn_1"


def ask(
    world: World, call_id: str = "c1", *, tool: str = "bash", generation: int = 1, **given: Any
) -> asyncio.Task[ExecuteResponse]:
    given = given or ({"command": "x"} if tool == "bash" else {"file_path": "a"})
    execute = world.executor.execute(SESSION, call_id, generation, tool, json.dumps(given))
    return asyncio.create_task(execute)


async def sandbox(world: World, number: int = 0) -> ScriptedSandbox:
    await eventually(lambda: len(world.backend.launched) > number)
    return world.backend.launched[number]


async def next_call(world: World, number: int = 0) -> dict[str, Any]:
    async with asyncio.timeout(30):
        return await (await sandbox(world, number)).frames.get()


async def settled() -> None:
    """Lets everything that is ready to run, run."""
    for _ in range(20):
        await asyncio.sleep(0)


def text(result: ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


async def test_call_is_recorded_before_its_tool_starts_and_its_result_after(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    assert world.journal.calls[SESSION, "c1"].result is None
    world.backend.launched[0].answer(call, "out")
    result = await asked
    assert (text(result), result.verdict, result.replayed) == ("out", VERDICT_COMPLETED, False)
    assert world.journal.calls[SESSION, "c1"].result == result


async def test_call_costs_one_commit_before_and_one_after(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    assert world.journal.commits == 1
    world.backend.launched[0].answer(call)
    await asked
    assert world.journal.commits == 2


async def test_repeated_call_attaches_to_the_running_one(world: World) -> None:
    first, second = ask(world), ask(world, generation=2)
    call = await next_call(world)
    world.backend.launched[0].answer(call, "once")
    assert text(await first) == text(await second) == "once"
    assert world.backend.launched[0].frames.empty()
    assert world.journal.fences[SESSION] == 2


async def test_repeated_call_reads_the_recorded_result(world: World) -> None:
    asked = ask(world)
    (await sandbox(world)).answer(await next_call(world), "once")
    await asked
    await world.restart()
    again = await ask(world)
    assert (text(again), again.replayed) == ("once", True)
    assert len(world.backend.launched) == 1


async def test_caller_that_goes_away_stops_nothing(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    asked.cancel()
    await settled()
    again = ask(world)
    world.backend.launched[0].answer(call, "still")
    assert text(await again) == "still"


async def test_call_left_running_by_a_dead_process_is_answered_unknown_and_not_run(
    world: World,
) -> None:
    await world.journal.begin(SESSION, "c1", 1, "bash")
    result = await ask(world)
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert result.is_error
    assert not world.backend.launched
    assert (await ask(world)).replayed


async def test_reading_left_running_by_a_dead_process_runs_once_more(world: World) -> None:
    await world.journal.begin(SESSION, "c1", 1, "read")
    asked = ask(world, tool="read")
    call = await next_call(world)
    world.backend.launched[0].answer(call, "content")
    assert text(await asked) == "content"


async def test_sandbox_that_dies_gives_unknown_and_the_next_call_a_new_one(world: World) -> None:
    asked = ask(world)
    await next_call(world)
    world.backend.launched[0].die("it used more memory than it may")
    result = await asked
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert "used more memory" in text(result)
    after = ask(world, "c2")
    call = await next_call(world, 1)
    world.backend.launched[1].answer(call, "new")
    assert text(await after) == f"new\n{SANDBOX_LOST}"


async def test_first_command_in_another_sandbox_is_told_that_the_shell_is_new(world: World) -> None:
    asked = ask(world)
    (await sandbox(world)).answer(await next_call(world), "first")
    assert text(await asked) == "first"
    await world.restart()
    reading = ask(world, "c2", tool="read")
    (await sandbox(world, 1)).answer(await next_call(world, 1), "content")
    assert text(await reading) == "content"
    for call_id, note in (("c3", f"\n{SANDBOX_LOST}"), ("c4", "")):
        asked = ask(world, call_id)
        world.backend.launched[1].answer(await next_call(world, 1), "out")
        assert text(await asked) == f"out{note}"


async def test_session_that_has_run_no_command_is_told_of_no_new_shell(world: World) -> None:
    reading = ask(world, tool="read")
    (await sandbox(world)).answer(await next_call(world))
    await reading
    await world.restart()
    asked = ask(world, "c2")
    (await sandbox(world, 1)).answer(await next_call(world, 1), "out")
    assert text(await asked) == "out"


async def test_command_after_a_stopped_one_is_told_that_the_shell_is_new(world: World) -> None:
    asked = ask(world)
    stopped = await next_call(world)
    cancelling = asyncio.create_task(world.executor.cancel(SESSION, 1, ["c1"]))
    assert (await next_call(world))["type"] == "cancel"
    world.backend.launched[0].answer(stopped, ended="cancelled", error=True)
    await cancelling
    assert (await asked).verdict == VERDICT_CANCELLED
    after = ask(world, "c2")
    world.backend.launched[0].answer(await next_call(world))
    assert text(await after) == SHELL_LOST


async def test_reading_in_a_sandbox_that_dies_runs_once_more_in_a_new_one(world: World) -> None:
    asked = ask(world, tool="read")
    await next_call(world)
    world.backend.launched[0].die()
    call = await next_call(world, 1)
    world.backend.launched[1].answer(call, "content")
    assert text(await asked) == "content"


async def test_reading_is_not_run_a_third_time(world: World) -> None:
    asked = ask(world, tool="read")
    for number in (0, 1):
        await next_call(world, number)
        world.backend.launched[number].die()
    assert (await asked).verdict == VERDICT_OUTCOME_UNKNOWN
    assert len(world.backend.launched) == 2


async def test_commands_run_one_after_the_other_in_the_order_of_their_calls(world: World) -> None:
    calls = [ask(world, f"c{number}", command=str(number)) for number in range(3)]
    for number in range(3):
        call = await next_call(world)
        assert call["input"]["command"] == str(number)
        await settled()
        assert world.backend.launched[0].frames.empty()
        world.backend.launched[0].answer(call)
        await calls[number]


async def test_file_tools_run_beside_a_command(world: World) -> None:
    command, reading = ask(world, "c1"), ask(world, "c2", tool="read")
    frames = [await next_call(world), await next_call(world)]
    assert [frame["tool"] for frame in frames] == ["bash", "read"]
    world.backend.launched[0].answer(frames[1])
    await reading
    world.backend.launched[0].answer(frames[0])
    await command


async def test_command_waiting_for_its_turn_survives_the_death_of_the_sandbox(
    world: World,
) -> None:
    first, second = ask(world, "c1"), ask(world, "c2")
    await next_call(world)
    world.backend.launched[0].die()
    assert (await first).verdict == VERDICT_OUTCOME_UNKNOWN
    call = await next_call(world, 1)
    world.backend.launched[1].answer(call, "ran")
    assert text(await second) == f"ran\n{SANDBOX_LOST}"


async def test_older_generation_is_refused_and_runs_nothing(world: World) -> None:
    await world.executor.provision(SESSION, 5)
    for generation in (0, 4):
        with pytest.raises(DroverError) as refused:
            await ask(world, generation=generation)
        assert refused.value.reason is Reason.LEASE_LOST
        with pytest.raises(DroverError):
            await world.executor.cancel(SESSION, generation, ["c1"])
        with pytest.raises(DroverError):
            await world.executor.provision(SESSION, generation)
    assert not world.journal.calls


async def test_older_generation_is_refused_after_a_restart(world: World) -> None:
    await world.executor.provision(SESSION, 5)
    await world.restart()
    for given in ({"command": "x"}, {"nonsense": 1}):
        with pytest.raises(DroverError) as refused:
            await ask(world, generation=4, **given)
        assert refused.value.reason is Reason.LEASE_LOST


async def test_waiting_call_runs_under_the_newest_generation_that_asks_for_it(
    world: World,
) -> None:
    first, waiting = ask(world, "c1"), ask(world, "c2")
    call = await next_call(world)
    attached = ask(world, "c2", generation=2)
    await settled()
    world.backend.launched[0].answer(call)
    await first
    world.backend.launched[0].answer(await next_call(world), "ran")
    assert text(await waiting) == text(await attached) == "ran"


async def test_waiting_call_of_an_older_generation_never_runs(world: World) -> None:
    first, waiting = ask(world, "c1"), ask(world, "c2")
    call = await next_call(world)
    await world.executor.provision(SESSION, 2)
    world.backend.launched[0].answer(call)
    await first
    with pytest.raises(DroverError) as refused:
        await waiting
    assert refused.value.reason is Reason.LEASE_LOST
    assert (SESSION, "c2") not in world.journal.calls


async def test_bad_input_is_answered_without_a_sandbox(world: World) -> None:
    result = await ask(world, tool="read", nonsense=1)
    assert result.verdict == VERDICT_NOT_RUN
    assert result.is_error
    assert not world.backend.launched


async def test_machine_without_sandboxes_runs_nothing_and_says_why(world: World) -> None:
    world.backend.refuse = "install bubblewrap"
    result = await ask(world)
    assert result.verdict == VERDICT_NOT_RUN
    assert "install bubblewrap" in text(result)
    world.backend.refuse = ""
    assert text(await ask(world)) == text(result)


async def test_full_disk_runs_nothing_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.workspaces, "make", fail)
    result = await ask(world)
    assert result.verdict == VERDICT_NOT_RUN
    assert "No space left" in text(result)


async def test_call_refused_for_want_of_room_may_be_asked_again(world: World) -> None:
    await world.restart(PoolSize(spares=0, max_live=1))
    async with world.pool.use("sesn_other"):
        with pytest.raises(DroverError) as refused:
            await ask(world)
        assert refused.value.reason is Reason.RESOURCE_EXHAUSTED
    assert not world.journal.calls
    asked = ask(world)
    world_call = await next_call(world, 1)
    world.backend.launched[1].answer(world_call, "ran")
    assert text(await asked) == "ran"


async def test_cancelled_call_is_stopped_before_cancel_returns(world: World) -> None:
    asked = ask(world)
    call = await next_call(world)
    cancel = asyncio.create_task(world.executor.cancel(SESSION, 1, ["c1"]))
    stop = await next_call(world)
    assert stop == {"type": "cancel", "id": call["id"]}
    await settled()
    assert not cancel.done()
    world.backend.launched[0].answer(call, "partial", error=True, ended="cancelled")
    await cancel
    result = await asked
    assert (result.verdict, text(result)) == (VERDICT_CANCELLED, "partial")


async def test_cancel_of_a_call_never_seen_leaves_a_tombstone(world: World) -> None:
    await world.executor.cancel(SESSION, 1, ["c1", "c1"])
    result = await ask(world)
    assert result.verdict == VERDICT_CANCELLED
    assert not world.backend.launched


async def test_cancel_changes_no_recorded_result(world: World) -> None:
    asked = ask(world)
    (await sandbox(world)).answer(await next_call(world), "done")
    await asked
    await world.executor.cancel(SESSION, 1, ["c1"])
    assert text(await ask(world)) == "done"


async def test_cancelled_call_that_waits_for_its_turn_is_answered_at_once(world: World) -> None:
    first, waiting = ask(world, "c1"), ask(world, "c2")
    call = await next_call(world)
    await world.executor.cancel(SESSION, 1, ["c2"])
    assert (await waiting).verdict == VERDICT_CANCELLED
    world.backend.launched[0].answer(call, "first")
    assert text(await first) == "first"
    third = ask(world, "c3")
    world.backend.launched[0].answer(await next_call(world), "third")
    assert text(await third) == "third"


async def test_cancelled_call_that_waits_for_a_sandbox_is_answered_at_once(world: World) -> None:
    world.backend.gate = asyncio.Event()
    asked = ask(world)
    await world.backend.starting.wait()
    await world.executor.cancel(SESSION, 1, ["c1"])
    assert (await asked).verdict == VERDICT_CANCELLED
    world.backend.gate.set()
    assert (await sandbox(world)).frames.empty()


async def test_agent_that_ignores_a_cancel_is_ended_with_its_sandbox(world: World) -> None:
    asked = ask(world)
    await next_call(world)
    await world.executor.cancel(SESSION, 1, ["c1"])
    assert (await asked).verdict == VERDICT_CANCELLED
    assert world.backend.launched[0].killed.is_set()


async def test_release_ends_the_sandbox_and_its_calls(world: World) -> None:
    asked = ask(world)
    await next_call(world)
    await world.executor.release(SESSION)
    assert (await asked).verdict == VERDICT_CANCELLED
    assert world.backend.launched[0].killed.is_set()


async def test_purged_session_begins_anew(world: World) -> None:
    await world.executor.cancel(SESSION, 5, ["c1"])
    await world.executor.release(SESSION)
    await world.executor.purge(SESSION, 0)
    asked = ask(world, generation=0)
    (await sandbox(world)).answer(await next_call(world), "fresh")
    assert text(await asked) == "fresh"


async def test_session_that_has_ended_starts_nothing_for_its_leases(world: World) -> None:
    asked = ask(world)
    await next_call(world)
    await world.executor.end(SESSION, 1)
    late = ask(world, "c2")
    await world.executor.release(SESSION)
    await world.executor.purge(SESSION, 1)
    assert (await asked).verdict == VERDICT_CANCELLED
    for refused in (late, ask(world, "c3"), world.executor.provision(SESSION, 1)):
        with pytest.raises(DroverError) as lost:
            await refused
        assert lost.value.reason is Reason.LEASE_LOST
    assert len(world.backend.launched) == 1
    assert world.journal.calls == {}
    assert world.journal.fences == {}


async def test_session_that_has_begun_anew_is_not_ended_by_its_former_end(world: World) -> None:
    asked = ask(world, generation=9)
    call = await next_call(world)
    with pytest.raises(DroverError):
        await world.executor.end(SESSION, 4)
    world.backend.launched[0].answer(call, "goes on")
    assert text(await asked) == "goes on"


async def test_sandbox_that_a_call_begins_to_start_while_its_session_ends_goes_too(
    world: World,
) -> None:
    world.backend.gate = asyncio.Event()
    asked = ask(world)
    await settled()
    ended = asyncio.create_task(world.executor.release(SESSION))
    await settled()
    world.backend.gate.set()
    await ended
    assert (await asked).verdict == VERDICT_CANCELLED
    assert all(sandbox.killed.is_set() for sandbox in world.backend.launched)
    assert not world.pool.has(SESSION)
