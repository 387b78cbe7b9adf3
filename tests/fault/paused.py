"""A stack at work whose PostgreSQL stands still for a while, and what was seen of it."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from anthropic import Anthropic

from chassis.errors import DroverError
from tests.doubles.messages_api import Gate, ToolUse, says, text, tools
from tests.doubles.postgres import Cluster
from tests.doubles.soak import share
from tests.e2e.driving import new_session, send
from tests.e2e.stack import Stack
from tests.fault.crowd import Answer, Crowd, crowd
from tests.fault.histories.history import History
from tests.fault.histories.keys import posted
from tests.fault.histories.reader import Reader
from tests.fault.histories.recorder import Recorder
from tests.fault.histories.service import Service, reached
from tests.fault.vitals import Complaints, Vitals, vitals

PAUSED = 60.0
LEAST = 15.0
"""Seconds: longer than it takes callers to be told, or too few are told in the pause."""
CALLERS = 16
_WORK = "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo ran >> count; echo done"
_SETTLED = 1.0  # s at work before and after
_PATIENCE = 10.0 if share(1) >= 1 else 60.0


@dataclass(slots=True)
class Seen:
    """What callers met, and what services took. Times are in seconds from the pause or its end."""

    paused_at: float = 0.0
    resumed_at: float = 0.0
    alive: set[int] = field(default_factory=set)
    red_after: float = 0.0
    green_after: float = 0.0
    written_after: float = 0.0
    finished_after: dict[str, float] = field(default_factory=dict)
    tool_results: list[Any] = field(default_factory=list)
    tool_runs: int = 0
    answers: list[Answer] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    refusals: list[tuple[DroverError, float]] = field(default_factory=list)
    history: History = field(default_factory=History)
    vitals: dict[str, dict[str, Vitals]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    @property
    def met(self) -> list[Answer]:
        """The answers to what was asked and answered while the server stood still."""
        return [
            answer
            for answer in self.answers
            if answer.at - answer.seconds > self.paused_at and answer.at < self.resumed_at
        ]


def observed(stack: Stack, cluster: Cluster) -> Seen:
    """Pauses the server under a stack at work; answers what was seen."""
    stack.model.default(lambda _: text("ok"))
    with stack.client() as client:
        return asyncio.run(_Story(stack, cluster, client).told())


class _Story:
    def __init__(self, stack: Stack, cluster: Cluster, client: Anthropic) -> None:
        self._stack = stack
        self._cluster = cluster
        self._seen = Seen()
        self._complaints = Complaints(stack.data / "logs")
        self._over = asyncio.Event()
        self._gate = Gate()
        made, thinking = new_session(client, tools=()), new_session(client, tools=())
        self._agent, self._session = made.agent.id, made.id
        stack.model.on(says("think"), text("thought").stall(self._gate))
        send(client, thinking.id, "think")
        self._gate.wait_reached()
        working = new_session(client)
        stack.model.on(says("work"), tools(ToolUse("bash", {"command": _WORK})), text("worked"))
        send(client, working.id, "work")
        self._workspace = stack.workspace(working.id)
        stack.wait_for((self._workspace / "begun").exists, "the tool to begin")
        self._in_flight = {"model": thinking.id, "tool": working.id}

    async def told(self) -> Seen:
        """Has clients at work while the server is paused, and after it goes on."""
        stack, seen, recorder = self._stack, self._seen, Recorder()
        async with (
            crowd(stack.url, stack.headers) as clients,
            reached(stack.address("session"), stack.peers) as service,
            asyncio.TaskGroup() as watching,
        ):
            reader = Reader("reader", self._session, clients.http, recorder, 0, slow=False)
            watched = [watching.create_task(self._probe(clients))]
            watched.append(watching.create_task(reader.run()))
            async with asyncio.TaskGroup() as calls:
                calls.create_task(self._emit(service))
                for number in range(CALLERS):
                    calls.create_task(self._write(clients, f"c{number}"))
                    calls.create_task(self._read(clients, number % 2))
                await self._pause(clients)
                await self._recover(clients)
                await asyncio.sleep(_SETTLED)
                self._over.set()
            await self._look_at_the_tool(clients)
            await clients.logs_at_rest(stack.address("session"), stack.peers)
            seen.vitals["after"] = vitals(stack)
            async with asyncio.timeout(_PATIENCE):
                await reader.shown(clients.history.logs[self._session][-1].id)
            for task in watched:
                task.cancel()
        seen.history, seen.answers = clients.history, clients.answers
        seen.history.readings.append(reader.reading())
        seen.unfit = [*clients.unfit, *recorder.unfit]
        seen.complaints = self._complaints.found()
        return seen

    async def _pause(self, clients: Crowd) -> None:
        seen = self._seen
        await asyncio.sleep(_SETTLED)
        seen.vitals["before"] = vitals(self._stack)
        self._cluster.pause()
        try:
            seen.paused_at = time.monotonic()
            self._gate.release()
            (self._workspace / "go").touch()
            for name in ("early", "late"):
                await asyncio.sleep(share(PAUSED, least=LEAST) / 2)
                seen.vitals[name] = vitals(self._stack)
            await self._until_told(clients)
            seen.resumed_at = time.monotonic()
        finally:
            self._cluster.resume()

    async def _until_told(self, clients: Crowd) -> None:
        """Waits for as many answers as there are callers: a busy machine takes its time."""

        def told() -> int:
            paused_at = self._seen.paused_at
            late = (one for one in clients.answers if one.at - one.seconds > paused_at)
            return sum(one.status != 200 for one in late)

        async with asyncio.timeout(_PATIENCE):
            while told() < CALLERS:  # noqa: ASYNC110 - many callers count
                await asyncio.sleep(0.1)

    async def _recover(self, clients: Crowd) -> None:
        """Waits until writes are taken, the stack is ready and the turns in flight have ended."""
        seen, in_flight = self._seen, dict(self._in_flight)
        while not (seen.written_after and seen.green_after) or in_flight:
            since = time.monotonic() - seen.resumed_at
            assert since < _PATIENCE, f"not all is back: {seen}"
            if await clients.post(self._session, f"back-{since}") and not seen.written_after:
                seen.written_after = time.monotonic() - seen.resumed_at
            for name, session in list(in_flight.items()):
                answer = await clients.request("GET", f"/v1/sessions/{session}")
                if answer is not None and answer.json().get("status") == "idle":
                    seen.finished_after[name] = time.monotonic() - seen.resumed_at
                    del in_flight[name]
            await asyncio.sleep(0.1)

    async def _look_at_the_tool(self, clients: Crowd) -> None:
        """Keeps what the model was told of the tool that ran in the pause, and how often it ran."""
        path = f"/v1/sessions/{self._in_flight['tool']}/events?types[]=agent.tool_result"
        answer = await clients.request("GET", path)
        assert answer is not None
        self._seen.tool_results = answer.json()["data"]
        self._seen.tool_runs = len((self._workspace / "count").read_text().split())

    async def _write(self, clients: Crowd, name: str) -> None:
        """Writes over HTTP until it is over."""
        number = 0
        while not self._over.is_set():
            number += 1
            await clients.post(self._session, f"{name}-{number}")
            await asyncio.sleep(0.2)

    async def _read(self, clients: Crowd, first: int) -> None:
        """Reads at the session service and at the registry, in turns, until it is over."""
        paths = (f"/v1/sessions/{self._session}", f"/v1/agents/{self._agent}")
        for number in itertools.count(first):
            if self._over.is_set():
                return
            await clients.request("GET", paths[number % len(paths)])
            await asyncio.sleep(0.2)

    async def _emit(self, service: Service) -> None:
        """Writes by gRPC, and keeps every refusal."""
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                await service.emit(self._session, [posted("")])
            except DroverError as error:
                self._seen.refusals.append((error, time.monotonic() - begun))
            await asyncio.sleep(0.2)

    async def _probe(self, clients: Crowd) -> None:
        """Asks whether the stack is alive, and whether it is ready."""
        seen = self._seen
        while True:
            seen.alive.add((await clients.http.get("/healthz")).status_code)
            ready = (await clients.http.get("/readyz")).status_code == 200
            now = time.monotonic()
            if seen.paused_at and not ready and not seen.red_after:
                seen.red_after = now - seen.paused_at
            if seen.resumed_at and ready and not seen.green_after:
                seen.green_after = now - seen.resumed_at
            await asyncio.sleep(0.1)
