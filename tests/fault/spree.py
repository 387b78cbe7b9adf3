"""Turns with tools on many sessions while brains are killed at random; the seed decides it all."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from tests.doubles.messages_api import Reply, Request, ToolUse, text, tools
from tests.e2e.driving import new_session, texts, user_message
from tests.e2e.stack import Stack

SESSIONS = 16
PAST_THE_LEASE = 10.5
"""Seconds for which a brain is stopped: its lease lives for 10."""

_TURN_SECONDS = 60.0
_BETWEEN_DEATHS = (2, 10)
"""Turns that end from one death to the next."""
PLAN = "plan "
_QUEUED = 0.15
_STOPPED = 0.08
_HANDS = 0.04
_SESSION = 0.04


@dataclass(frozen=True, slots=True)
class Plan:
    """One turn: rounds of commands by their marks, each with its seconds; then the last word."""

    name: str
    rounds: tuple[tuple[tuple[str, float], ...], ...]

    @property
    def marks(self) -> list[str]:
        """The mark of every command."""
        return [mark for one in self.rounds for mark, _ in one]


def plan(seed: int, session: int, number: int) -> Plan:
    """The turn of this number, always the same for a seed."""
    chance = random.Random(f"{seed}/{session}/{number}")  # noqa: S311 - a spree must come again
    name = f"{session}-{number}"
    rounds = []
    for at in range(chance.choice((0, 1, 1, 1, 2))):
        count = chance.choice((1, 1, 2, 3))
        rounds.append(
            tuple((f"{name}-{at}-{one}", round(chance.uniform(0, 0.2), 2)) for one in range(count))
        )
    return Plan(name, tuple(rounds))


def follow_the_plan(request: Request) -> Reply:
    """A model that does what the newest message plans: by the history alone, so that it is asked
    again with the same outcome.
    """
    messages = request.body["messages"]
    for back, message in enumerate(reversed(messages)):
        for block in message["content"] if isinstance(message["content"], list) else ():
            said = block.get("text", "") if block["type"] == "text" else ""
            if message["role"] == "user" and said.startswith(PLAN):
                name, rounds = json.loads(said.removeprefix(PLAN))
                done = back // 2
                if done >= len(rounds):
                    return text(f"done {name}", pieces=2)
                return tools(*(_command(mark, seconds) for mark, seconds in rounds[done]))
    return text("nothing is planned")


def _command(mark: str, seconds: float) -> ToolUse:
    command = f"echo {mark} >> /workspace/marks; sleep {seconds}; echo {mark} ran"
    return ToolUse("bash", {"command": command})


@dataclass
class Deaths:
    """What was done to processes, in order."""

    killed: int = 0
    stopped: int = 0
    hands: int = 0
    session: int = 0


@dataclass
class Spree:
    """Clients that work through their plans, and a hand that kills until all are done."""

    stack: Stack
    seed: int
    turns: int
    brains: tuple[str, ...]
    sessions: list[str] = field(default_factory=list)
    sent: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, list[str]] = field(default_factory=dict)
    plans: dict[str, list[Plan]] = field(default_factory=dict)
    deaths: Deaths = field(default_factory=Deaths)
    finished: int = 0
    seconds: float = 0.0

    @property
    def is_enough(self) -> bool:
        """Whether as many brains were killed as it takes to show anything."""
        return self.deaths.killed > self.turns / 20

    async def run(self, client: Anthropic) -> None:
        """Does all turns; fails when one takes longer than a minute."""
        self.sessions = [(await asyncio.to_thread(new_session, client)).id for _ in range(SESSIONS)]
        begun = time.monotonic()
        async with self.stack.async_client(max_retries=5) as http, asyncio.TaskGroup() as killing:
            killer = killing.create_task(self._kill())
            async with asyncio.TaskGroup() as clients:
                for place, session in enumerate(self.sessions):
                    count = self.turns // SESSIONS + (place < self.turns % SESSIONS)
                    clients.create_task(self._work(http, session, place, count))
            killer.cancel()
        self.seconds = time.monotonic() - begun

    async def _work(self, http: AsyncAnthropic, session: str, place: int, count: int) -> None:
        chance = random.Random(f"{self.seed}/{place}")  # noqa: S311 - as above
        sent, seen = self.sent.setdefault(session, []), self.seen.setdefault(session, [])
        waiting = self._planned(session, place, count)
        async with await http.beta.sessions.events.stream(session) as events:
            following = aiter(events)
            while (one := next(waiting, None)) is not None:
                batch = [one]
                while chance.random() < _QUEUED and (more := next(waiting, None)) is not None:
                    batch.append(more)
                for turn in batch:
                    answer = await http.beta.sessions.events.send(
                        session, events=[user_message(PLAN + json.dumps([turn.name, turn.rounds]))]
                    )
                    sent += [event.id for event in answer.data or []]
                async with asyncio.timeout(_TURN_SECONDS * len(batch)):
                    await self._until_idle(following, sent[-1], seen)
                self.finished += len(batch)

    def _planned(self, session: str, place: int, count: int) -> Iterator[Plan]:
        """A session's turns: so many, and more for as long as too few brains have died."""
        plans = self.plans[session] = []
        while len(plans) < count or not self.is_enough:
            plans.append(plan(self.seed, place, len(plans)))
            yield plans[-1]

    @staticmethod
    async def _until_idle(events: Any, last: str, seen: list[str]) -> None:
        """Reads the stream to the idle event that follows the last message."""
        async for event in events:
            if getattr(event, "processed_at", None) is not None:
                seen.append(event.id)
                if event.type == "session.status_idle" and last in seen[-400:]:
                    return
        msg = "the stream ended"
        raise AssertionError(msg)

    async def _kill(self) -> None:
        chance = random.Random(f"{self.seed}/deaths")  # noqa: S311 - as above
        async with asyncio.TaskGroup() as stopping:
            stopped, name = stopping.create_task(asyncio.sleep(0)), ""
            while True:
                await self._some_turns(chance)
                # One that is stopped is to go on once its lease has run out.
                others = [one for one in self.brains if stopped.done() or one != name]
                kind, target = chance.random(), chance.choice(others)
                if kind < _STOPPED:
                    if stopped.done():
                        stopped, name = stopping.create_task(self._stop(target)), target
                elif kind < _STOPPED + _HANDS:
                    self.deaths.hands += self._signal("hands", signal.SIGKILL) is not None
                elif kind < _STOPPED + _HANDS + _SESSION:
                    self.deaths.session += self._signal("session", signal.SIGKILL) is not None
                else:
                    while self._signal(target, signal.SIGKILL) is None:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    self.deaths.killed += 1

    async def _some_turns(self, chance: random.Random) -> None:
        """Waits for a while that holds a few turns, however slow the machine is.

        A brain that dies in the same request for the fifth time in a row has its turn given up.
        """
        wanted = self.finished + chance.randint(*_BETWEEN_DEATHS)
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        with suppress(TimeoutError):
            async with asyncio.timeout(_TURN_SECONDS / 10):
                while self.finished < wanted:  # noqa: ASYNC110 - many clients count
                    await asyncio.sleep(0.01)

    async def _stop(self, name: str) -> None:
        pid = self._signal(name, signal.SIGSTOP)
        if pid is None:
            return
        self.deaths.stopped += 1
        try:
            await asyncio.sleep(PAST_THE_LEASE)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> int | None:
        with suppress(ProcessLookupError, FileNotFoundError):  # it is being started
            pid = self.stack.pid(name)
            os.kill(pid, number)
            return pid
        return None


def check_log(log: list[Any], sent: list[str], seen: list[str], plans: list[Plan]) -> None:
    """Nothing acknowledged is lost, doubled or out of order, and every turn was answered."""
    ids = [event.id for event in log]
    assert len(set(ids)) == len(ids)
    assert [event.id for event in log if event.type == "user.message"] == sent
    assert seen == ids
    # A brain that was stopped may find its connection to the model broken, and tries again.
    errors = [event.error for event in log if event.type == "session.error"]
    assert [error for error in errors if error.retry_status.type != "retrying"] == []
    ends = [event.stop_reason.type for event in log if event.type == "session.status_idle"]
    assert set(ends) == {"end_turn"}
    assert texts(log, "agent.message") == [f"done {one.name}" for one in plans]
    starts = [event.id for event in log if event.type == "span.model_request_start"]
    closed = [e.model_request_start_id for e in log if e.type == "span.model_request_end"]
    assert starts == closed


def check_commands(log: list[Any], left: list[str], plans: list[Plan]) -> Counter[str]:
    """Every command has one result, and ran once unless its result says that this is not known."""
    marks = [mark for one in plans for mark in one.marks]
    calls = {e.id: e.input["command"].split()[1] for e in log if e.type == "agent.tool_use"}
    assert sorted(calls.values()) == sorted(marks)
    results = [event for event in log if event.type == "agent.tool_result"]
    assert sorted(event.tool_use_id for event in results) == sorted(calls)
    ran, unknown = Counter(left), 0
    for result in results:
        mark, shown = calls[result.tool_use_id], result.content[0].text
        if result.is_error:
            assert "unknown" in shown, shown
            assert ran[mark] <= 1, (mark, ran, shown)
            unknown += 1
        else:
            assert shown.startswith(f"{mark} ran"), (mark, ran, shown)
            assert ran[mark] == 1, (mark, ran, shown)
    assert set(ran) <= set(marks)
    closed = sum(e.type == "span.model_request_end" and bool(e.is_error) for e in log)
    return Counter(commands=len(calls), unknown=unknown, closed_requests=closed)
