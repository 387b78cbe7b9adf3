"""Seeded storms: brains die, connections break, people interrupt, in any order (CASES F22, F30)."""

from __future__ import annotations

import asyncio
import random

import pytest

from chassis.errors import DroverError, Reason
from services.brain.domain.decision import GoIdle, Mine, Release
from services.brain.harness.standard import StandardHarness
from services.brain.loop.sync_points import Point
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import Raw, Reply, response, text, thinking, tool
from tests.integration.brain.agents import ask_for, custom_tool, overloaded
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_turns import IDLE

SEEDS = range(25)
STEPS = 25


class Storm:
    """Decides at every point what goes wrong; it calms down after a while."""

    def __init__(self, seed: int, session: FakeSession) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.session = session
        self.died = asyncio.Event()
        self.left = STEPS

    async def reach(self, _point: Point) -> None:
        if self.left <= 0:
            return
        match self.random.randrange(12):
            case 0:
                self.left -= 1
                self.session.interrupt()
            case 1:
                self.left -= 1
                if not self.asked():
                    self.session.message(f"message {self.left}")
            case 2:
                self.left -= 1
                self.session.break_connection()
            case 3:
                self.left -= 1
                self.died.set()
                await asyncio.Event().wait()
            case 4:
                await asyncio.sleep(0)
            case _:
                pass

    def asked(self) -> list[str]:
        """Calls that a person or the client has to answer."""
        customs = {event.id for event in self.session.of("agent_custom_tool_use")}
        asking = {
            event.id
            for event in self.session.of("agent_tool_use")
            if event.agent_tool_use.evaluation.HasField("always_ask")
        }
        return [
            call_id
            for call_id, state in self.session.calls.items()
            if state == "open" and call_id in customs | asking
        ]

    def answer(self) -> None:
        customs = {event.id for event in self.session.of("agent_custom_tool_use")}
        call_id = self.random.choice(self.asked())
        if call_id in customs:
            self.session.answer(call_id, "answer")
        else:
            self.session.confirm(call_id, allow=self.random.random() < 0.5)

    def reply(self) -> Reply:
        if self.random.random() < 0.15:
            return Reply([], overloaded())
        blocks = [thinking("hm")] if self.random.random() < 0.3 else []
        blocks.append(text("some words", pieces=3))
        if self.random.random() < 0.7:
            blocks += [self.call(number) for number in range(self.random.randrange(1, 4))]
        return Reply(response(*blocks))

    def call(self, number: int) -> list[Raw]:
        name = self.random.choice(("bash", "bash", "glob", "write", "ask_user", "nonsense"))
        return tool(name, {"command": f"run {self.random.random()}"}, f"toolu_{number}")


async def weather(rig: Rig, session: FakeSession, storm: Storm) -> None:
    """Wakes brains until the session rests and nobody has anything more to say."""
    brain = await rig.brain(points=storm)
    while True:
        storm.died.clear()
        woken = asyncio.ensure_future(rig.wake(session, brain))
        died = asyncio.ensure_future(storm.died.wait())
        await asyncio.wait({woken, died}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if storm.died.is_set():
            await brain.__aexit__(None, None, None)
            with pytest.raises(asyncio.CancelledError):
                await woken
            session.revoke()
            brain = await rig.brain(points=storm)
            continue
        try:
            await woken
        except DroverError as error:
            # The acknowledgement of the release was lost, or the lease with its connection.
            if error.reason is not Reason.LEASE_LOST:
                raise
            session.revoke()
        if storm.asked() and session.stop == "requires_action":
            storm.answer()
        elif not session.waiting().ListFields() and "session_status_idle" in session.kinds[-1:]:
            return


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_storm_ends_in_a_session_at_rest_with_a_legal_log(rig: Rig, seed: int) -> None:
    session = rig.session(ask_for("write"), custom_tool("ask_user"))
    storm = Storm(seed, session)

    def reply(_body: bytes) -> None:
        rig.model.replies.clear()
        rig.model.add(storm.reply() if storm.left > 0 else Reply(response(text("Done."))))

    rig.model.before_each = reply
    session.message("Go")
    await weather(rig, session, storm)
    check(rig, session)


def check(rig: Rig, session: FakeSession) -> None:
    ids = [event.id for event in session.log]
    assert len(ids) == len(set(ids))
    results: dict[str, int] = {}
    for at, event in enumerate(session.log):
        if event.HasField("agent_tool_result"):
            call_id = event.agent_tool_result.tool_use_id
            assert ids.index(call_id) < at
            results[call_id] = results.get(call_id, 0) + 1
        if event.HasField("session_status_idle"):
            assert session.kinds[at - 2 : at + 1] == IDLE
        if event.HasField("span_model_request_end"):
            assert event.span_model_request_end.model_request_start_id in ids[:at]
    answered = {
        event.user_custom_tool_result.custom_tool_use_id
        for event in session.of("user_custom_tool_result")
    }
    uses = [
        event.id for event in (*session.of("agent_tool_use"), *session.of("agent_custom_tool_use"))
    ]
    for call_id in uses:
        assert results.get(call_id, 0) + (call_id in answered) == 1
    assert len(rig.hands.ran) == len(set(rig.hands.ran))
    ends = session.of("span_model_request_end")
    starts = {event.id for event in session.of("span_model_request_start")}
    assert {end.span_model_request_end.model_request_start_id for end in ends} == starts
    harness = StandardHarness()
    state = harness.begin(session.session)
    for event in session.log:
        harness.project(state, event, 0.0)
    assert isinstance(harness.decide(state, session.waiting(), Mine()), Release | GoIdle)
