"""Sessions at work while every process is replaced in turn, as an upgrade does it: by SIGTERM."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import httpx2
from anthropic import APIError, AsyncAnthropic

from tests.doubles.messages_api import Reply, Request
from tests.e2e.driving import MODEL, TOOLSET, history, user_message
from tests.e2e.forked_service import RELEASE
from tests.e2e.replicas import GATEWAYS
from tests.e2e.stack import KEY
from tests.fault.fleet import serves
from tests.fault.spree import PLAN, Plan, check_commands, check_log, follow_the_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.replicas import Replicas

_DEADLINE: Final = 60.0
_THOUGHT_SECONDS: Final = 0.6
_COMMAND_SECONDS: Final = 1.2
_AT_ONCE: Final = 8
_MOST: Final = 0.7


def slowly(request: Request) -> Reply:
    """A model that does what is planned, and takes its time: an answer is always under way."""
    return follow_the_plan(request).delayed(_THOUGHT_SECONDS)


class Balanced(httpx2.AsyncBaseTransport):
    """What stands before several gateways: it goes to the next when one cannot be connected to."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [httpx2.URL(url) for url in urls]
        self._turn = count()
        self._through = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Passes a request on."""
        begin = next(self._turn)
        for attempt in range(len(self._urls)):
            to = self._urls[(begin + attempt) % len(self._urls)]
            request.url = request.url.copy_with(host=to.host, port=to.port)
            with suppress(httpx2.ConnectError):
                return await self._through.handle_async_request(request)
        msg = "no gateway can be connected to"
        raise httpx2.ConnectError(msg)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._through.aclose()


@dataclass(slots=True)
class Turn:
    """One turn, from its message to its idle event, on the monotonic clock."""

    began: float
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


@dataclass(slots=True)
class Client:
    """One session's client: sends a message, reads to the end of the turn, and so on."""

    http: AsyncAnthropic
    session_id: str
    place: int
    plans: list[Plan] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: int = 0
    """How many events were seen up to the last that says that it is idle."""
    resumed: int = 0
    at_work: bool = False

    async def work(self, until: asyncio.Event) -> None:
        """Takes turns until it is told that it is enough."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow())
            while not until.is_set():
                await self._take_turn()
            following.cancel()

    async def _take_turn(self) -> None:
        name = f"{self.place}-{len(self.plans)}"
        rounds = (((f"{name}-0", _COMMAND_SECONDS), (f"{name}-1", 0.0)),)
        self.plans.append(Plan(name, rounds))
        self.idle.clear()
        turn = Turn(time.monotonic())
        self.turns.append(turn)
        async with asyncio.timeout(_DEADLINE):
            message: Any = user_message(PLAN + json.dumps([name, rounds]))
            answer = await self.http.beta.sessions.events.send(self.session_id, events=[message])
            self.sent += [event.id for event in answer.data or []]
            self.at_work = True
            self._look()  # the stream may have been quicker than the answer
            await self.idle.wait()
        self.at_work, turn.ended = False, time.monotonic()

    async def _follow(self) -> None:
        """Reads the stream, and goes on at another gateway whenever it ends."""
        while True:
            with suppress(APIError, httpx2.HTTPError):
                after = {"after": self.seen[-1] if self.seen else ""}
                stream = self.http.beta.sessions.events.stream(self.session_id, extra_query=after)
                async with await stream as events:
                    async for event in events:
                        self._see(event)
            self.resumed += 1

    def _see(self, event: Any) -> None:
        if getattr(event, "processed_at", None) is None:
            return
        self.seen.append(event.id)
        if event.type == "session.status_idle":
            self.ended_at = len(self.seen)
            self._look()

    def _look(self) -> None:
        """Each message is sent once the turn before has ended: the next idle event is its own."""
        if self.sent and self.sent[-1] in self.seen[: self.ended_at]:
            self.idle.set()


@dataclass(slots=True)
class Restart:
    """What became of one process's restart."""

    name: str
    began: float
    stopped: float = 0.0
    back: float = 0.0

    def longest(self, turns: list[Turn]) -> float:
        """Seconds of the longest turn that was under way meanwhile."""
        return max(one.seconds for one in turns if one.began < self.back and one.ended > self.began)


@dataclass(slots=True)
class Rolling:
    """Clients at work, while processes are restarted one after the other."""

    stack: Replicas
    sessions: int
    clients: list[Client] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    calm: list[Turn] = field(default_factory=list)
    """Turns before the first restart."""

    @property
    def turns(self) -> list[Turn]:
        """All that have ended."""
        return [turn for client in self.clients for turn in client.turns if turn.ended]

    @property
    def undisturbed(self) -> float:
        """Seconds of the longest turn before the first restart: each has its sandbox made, too."""
        return max(turn.seconds for turn in self.calm)

    @property
    def longest(self) -> dict[str, float]:
        """Seconds of the longest turn beside each restart."""
        return {one.name: one.longest(self.turns) for one in self.restarts}

    def judged(self) -> Counter[str]:
        """Checks that no event and no command is lost or doubled; counts what was broken off."""
        counts: Counter[str] = Counter()
        with self.stack.client() as client:
            for one in self.clients:
                log = history(client, one.session_id)
                check_log(log, one.sent, one.seen, one.plans)
                marks = self.stack.workspace(one.session_id) / "marks"
                left = marks.read_text().split() if marks.exists() else []
                try:
                    counts += check_commands(log, left, one.plans)
                except AssertionError as error:
                    error.add_note(self._around(one.session_id))
                    raise
        return counts

    def _around(self, session_id: str) -> str:
        """What there is to see of a session's sandbox."""
        volume = self.stack.workspace(session_id).parent
        lines = [f"{one} {one.lstat()}" for one in (volume, *volume.rglob("*"))]
        log = self.stack.log("hands")
        return "\n".join(lines + [f"{one}" for one in log if one.get("session_id") == session_id])

    async def run(self, names: Sequence[str]) -> None:
        """Restarts each of the named processes while all sessions are at work."""
        through = Balanced([self.stack.url(name) for name in GATEWAYS])
        async with httpx2.AsyncClient(transport=through, timeout=_DEADLINE) as http:
            sdk = AsyncAnthropic(base_url=self.stack.url(), api_key=KEY, http_client=http)
            await self._create(sdk)
            enough = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                for client in self.clients:
                    tasks.create_task(client.work(enough))
                await self._until(lambda: all(len(one.turns) > 1 for one in self.clients))
                self.calm = self.turns
                for name in names:
                    await self._restart(name)
                enough.set()

    async def _create(self, sdk: AsyncAnthropic) -> None:
        toolset: Any = TOOLSET
        agent = await sdk.beta.agents.create(name="clerk", model=MODEL, tools=[toolset])
        environment = await sdk.beta.environments.create(name="desk")
        room = asyncio.Semaphore(_AT_ONCE)

        async def create(place: int) -> None:
            async with room:
                session = await sdk.beta.sessions.create(
                    agent=agent.id, environment_id=environment.id
                )
            self.clients.append(Client(sdk, session.id, place))

        async with asyncio.TaskGroup() as tasks:
            for place in range(self.sessions):
                tasks.create_task(create(place))

    async def _restart(self, name: str) -> None:
        """SIGTERM, the end, another one of this release; in the middle of most sessions' turns."""
        await self._until(lambda: sum(one.at_work for one in self.clients) > self.sessions * _MOST)
        restart = Restart(name, time.monotonic())
        self.restarts.append(restart)
        await asyncio.to_thread(self.stack.stop, name)
        restart.stopped = time.monotonic()
        self.stack.processes[name].environment.pop(RELEASE, None)
        await asyncio.to_thread(self.stack.start, name)
        await self._until(lambda: serves(self.stack, name))
        restart.back = time.monotonic()

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(_DEADLINE):
            while not holds():  # noqa: ASYNC110 - many clients count
                await asyncio.sleep(0.02)
