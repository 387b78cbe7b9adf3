"""F22: an interrupt races the results of tools. Either order is legal; nothing is left running."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from services.brain.domain.calls import INTERRUPTED
from services.brain.loop.pool import BrainPool
from tests.doubles.lease_service import FakeSession
from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.scripted_model import text as said
from tests.doubles.scripted_model import tool as called
from tests.doubles.soak import limit, share
from tests.e2e.driving import history, new_session, send
from tests.e2e.stack import Stack
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import TOOLSET, Rig, rig
from tests.integration.brain.test_turns import IDLE

__all__ = ["rig"]

SEEDS: Final = int(share(1_000))
TOGETHER: Final = 25
LATE: Final = 12.0
EARLY: Final = 9.0
"""Either side comes after up to two to the power of so many turns of the event loop."""


@dataclass(slots=True)
class Race:
    """One session, and the order in which a seed lets things happen to it."""

    seed: int
    session: FakeSession
    brain: BrainPool
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311

    @property
    def commands(self) -> list[str]:
        return [f"seed {self.seed} call {number}" for number in range(1 + self.seed % 3)]

    @property
    def asks(self) -> bool:
        """Whether a custom tool is called beside the others, whose answer is in the race, too."""
        return self.seed % 4 == 0

    async def run(self, rig: Rig) -> None:
        """Lets results, an answer and an interrupt come when the seed says."""
        gates = [rig.hands.hold(command) for command in self.commands]
        self.session.message(f"seed {self.seed}.")
        async with asyncio.TaskGroup() as tasks:
            woken = tasks.create_task(self._until_rest())
            started = [event.id for event in self.session.of("agent_tool_use")]
            while len(started) < len(gates) or not set(started) <= set(rig.hands.ran):
                await asyncio.sleep(0)
                started = [event.id for event in self.session.of("agent_tool_use")]
            for gate in gates:
                # Some calls would never end by themselves.
                if self.chance.random() < 0.8:
                    tasks.create_task(self._after(LATE, gate.set))
            if self.asks:
                [call] = self.session.of("agent_custom_tool_use")
                tasks.create_task(self._after(LATE, lambda: self.session.answer(call.id, "yes")))
            tasks.create_task(self._after(EARLY, self._interrupt))
            await woken

    async def _until_rest(self) -> None:
        """Wakes a brain as often as something waits, as the session service does."""
        while not any(event.HasField("user_interrupt") for event in self.session.log):
            await self.brain.wake(self.session.session.id)
            await asyncio.sleep(0)
        while any(value for _, value in self.session.waiting().ListFields()):
            await self.brain.wake(self.session.session.id)

    async def _after(self, longest: float, act: Callable[[], object]) -> None:
        for _ in range(int(2 ** self.chance.uniform(0, longest))):
            await asyncio.sleep(0)
        act()

    def _interrupt(self) -> None:
        self.session.interrupt()
        if self.chance.random() < 0.3:
            self.session.message(f"seed {self.seed}, and then?")


def reply(rig: Rig, races: dict[int, Race]) -> None:
    """Has the model call its seed's tools once, and talk from then on."""

    def answer(body: bytes) -> None:
        messages = json.loads(body)["messages"]
        seed = int(messages[0]["content"][0]["text"].split()[1].strip(".,"))
        race = races[seed]
        if len(messages) > 1:
            rig.model.say(said("Done."))
            return
        blocks = [
            called("bash", {"command": command}, f"toolu_{number}")
            for number, command in enumerate(race.commands)
        ]
        if race.asks:
            blocks.append(called("ask_user", {}, "toolu_ask"))
        rig.model.say(*blocks)

    rig.model.before_each = answer


def check(race: Race, rig: Rig) -> str:
    """Holds the log of a race to the contract; answers who won."""
    session = race.session
    kinds = session.kinds
    ids = [event.id for event in session.log]
    assert len(set(ids)) == len(ids)
    at = kinds.index("user_interrupt")
    assert kinds[at + 1 : at + 4] == IDLE
    for index in (at + 3, len(kinds) - 1):
        assert session.log[index].session_status_idle.stop_reason.HasField("end_turn")
    assert kinds.count("user_interrupt") == 1
    results: Counter[str] = Counter()
    won: set[str] = set()
    for event in session.of("agent_tool_result"):
        result = event.agent_tool_result
        results[result.tool_use_id] += 1
        cut = result.content[0].text.text == INTERRUPTED
        assert cut is result.is_error
        assert event.seq < at + 1 or not cut
        won.add("interrupt" if cut else "result")
    results.update(
        event.user_custom_tool_result.custom_tool_use_id
        for event in session.of("user_custom_tool_result")
    )
    uses = [*session.of("agent_tool_use"), *session.of("agent_custom_tool_use")]
    assert results == Counter(event.id for event in uses)
    assert len(rig.hands.ran) == len(set(rig.hands.ran))
    return "both" if len(won) > 1 else won.pop()


@pytest.mark.timeout(limit(180))
async def test_f22_either_order_is_legal_and_the_session_ends_idle(rig: Rig) -> None:
    brain = await rig.brain(max_sessions=TOGETHER + 8)
    races = {
        seed: Race(seed, rig.session(TOOLSET, custom_tool("ask_user")), brain)
        for seed in range(SEEDS)
    }
    reply(rig, races)
    waiting = list(races.values())
    while waiting:
        together, waiting = waiting[:TOGETHER], waiting[TOGETHER:]
        async with asyncio.TaskGroup() as tasks:
            for race in together:
                tasks.create_task(race.run(rig), name=f"seed {race.seed}")
    won: Counter[str] = Counter()
    for race in races.values():
        try:
            won[check(race, rig)] += 1
        except AssertionError as error:
            error.add_note(f"seed {race.seed}: {race.session.kinds}")
            raise
    assert rig.hands.running == 0
    # It was a race: each side has won some.
    assert min(won["interrupt"], won["result"]) > SEEDS // 50, won


@pytest.mark.parametrize("seed", range(6))
def test_f22_on_real_processes_the_command_is_dead_and_the_session_idle(
    stack: Stack, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    mark = f"0.{uuid.uuid4().int % 10**12:012}1"
    lasts = chance.uniform(0, 0.06)
    command = f"touch begun; sleep {lasts}; echo over; sleep {mark} & sleep 600.{mark[2:]} &"
    waits = chance.choice(["", "wait"])
    stack.model.script(tools(ToolUse("bash", {"command": f"{command} {waits}"})))
    stack.model.default(lambda _request: text("done"))
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "work")
        stack.wait_for((stack.workspace(session.id) / "begun").exists, "the command to begin")
        events: list[Any] = [{"type": "user.interrupt"}]
        client.beta.sessions.events.send(session.id, events=events)

        def stopped() -> bool:
            log = history(client, session.id)
            kinds = [event.type for event in log]
            return "user.interrupt" in kinds and kinds[-1] == "session.status_idle"

        stack.wait_for(stopped, "the end of the turn")
        log = history(client, session.id)
    assert log[-1].stop_reason.type == "end_turn"
    [result] = [event for event in log if event.type == "agent.tool_result"]
    if result.is_error:
        # More where other tests take the processor as well.
        within = 1.0 if share(1) >= 1 else 20.0
        stack.wait_for(
            lambda: not stack.host_processes(f"sleep 600.{mark[2:]}"), "its death", within
        )
