"""F24: a gateway with 1,000 open streams is killed: readers go on at another and see all once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.doubles.ports import free_port
from tests.doubles.postgres import Cluster
from tests.doubles.soak import share
from tests.e2e.driving import MODEL
from tests.e2e.replicas import GATEWAYS, SESSIONS, Replicas
from tests.fault.fleet import running_fleet
from tests.fault.streams import At, Follower, listed

SESSIONS_WATCHED = 200
READERS_EACH = 5
BACK_SECONDS = 5.0 if share(1) >= 1 else 30.0
"""By when a session service is rid of a gateway that is gone."""
DEADLINE = 60.0
AT_ONCE = 32
METRICS = "DROVER_METRICS_LISTEN"
SUBSCRIPTIONS = "drover_session_subscriptions "


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Replicas]:
    def expose(planned: Replicas) -> None:
        for name in SESSIONS:
            planned.processes[name].environment[METRICS] = f"127.0.0.1:{free_port()}"

    data, parts = tmp_path_factory.mktemp("killed"), ("registry", *SESSIONS, *GATEWAYS)
    with running_fleet(data, postgres.new_database(), *parts, prepare=expose) as running:
        yield running


@dataclass
class Client:
    """A reader who comes back behind what it has seen, at whichever gateway it is told."""

    session_id: str
    seen: list[str] = field(default_factory=list)
    follower: Follower | None = None

    async def follow(self, url: str) -> None:
        """Opens a stream."""
        last = {"last": self.seen[-1]} if self.seen else {"after": ""}
        self.follower = Follower(At(url, self.session_id, **last), self.seen.append)
        await self.follower.open()

    async def go_on(self, url: str) -> None:
        """Opens another when this one breaks."""
        assert self.follower is not None
        await self.follower.lost.wait()
        await self.follow(url)

    async def close(self) -> None:
        """Leaves."""
        if self.follower is not None:
            await self.follower.close()


@dataclass
class World:
    """The fleet, seen from outside."""

    fleet: Replicas
    http: httpx2.AsyncClient
    sessions: list[str] = field(default_factory=list)

    async def create_sessions(self) -> None:
        """All of them."""
        url = f"{self.fleet.url()}/v1"
        agent = await self._post(f"{url}/agents", {"name": "clerk", "model": MODEL})
        environment = await self._post(f"{url}/environments", {"name": "desk"})
        body = {"agent": agent["id"], "environment_id": environment["id"]}

        async def create(_: int) -> None:
            self.sessions.append((await self._post(f"{url}/sessions", body))["id"])

        await in_parallel(create, range(SESSIONS_WATCHED))

    async def append(self, gateway: str, title: str) -> None:
        """Adds an event to each log."""

        async def rename(session_id: str) -> None:
            path = f"{self.fleet.url(gateway)}/v1/sessions/{session_id}"
            await self._post(path, {"title": title})

        await in_parallel(rename, self.sessions)

    async def subscriptions(self) -> int:
        """How many the session services have."""
        total = 0
        for name in SESSIONS:
            at = self.fleet.processes[name].environment[METRICS]
            text = (await self.http.get(f"http://{at}/metrics")).text
            [line] = [one for one in text.splitlines() if one.startswith(SUBSCRIPTIONS)]
            total += int(float(line.split()[1]))
        return total

    async def until_subscriptions(self, count: int, seconds: float) -> None:
        """Waits until they are no more than so many."""
        try:
            async with asyncio.timeout(seconds):
                while await self.subscriptions() > count:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"{await self.subscriptions()} subscriptions are left after {seconds} s")

    async def _post(self, url: str, body: Any) -> Any:
        answer = await self.http.post(url, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def in_parallel(act: Callable[[Any], Awaitable[None]], each: Any) -> None:
    """Acts on each, a few at a time."""
    left = iter(each)

    async def act_on() -> None:
        for one in left:
            await act(one)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(act_on())


async def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds that nothing announces."""
    async with asyncio.timeout(DEADLINE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def world(fleet: Replicas) -> AsyncIterator[tuple[World, list[Client]]]:
    """Sessions, with an event each, that 1,000 clients read at the first gateway."""
    async with AsyncExitStack() as exits:
        http = httpx2.AsyncClient(headers=fleet.headers, timeout=DEADLINE, trust_env=False)
        made = World(fleet, await exits.enter_async_context(http))
        await made.create_sessions()
        clients = [Client(session) for session in made.sessions for _ in range(READERS_EACH)]
        for client in clients:
            exits.push_async_callback(client.close)
        await in_parallel(lambda client: client.follow(fleet.url()), clients)
        await made.append("gateway-1", "first")
        await until(lambda: all(len(client.seen) == 1 for client in clients))
        yield made, clients


async def test_its_readers_go_on_at_another_and_the_services_are_soon_rid_of_it(
    fleet: Replicas,
) -> None:
    async with world(fleet) as (made, clients):
        base = await made.subscriptions()
        assert base == SESSIONS_WATCHED  # the readers of a session share one

        fleet.kill("gateway-1")
        other = fleet.url("gateway-2")
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            group.create_task(made.append("gateway-2", "meanwhile"))
            for client in clients:
                group.create_task(client.go_on(other))
        await made.until_subscriptions(base, BACK_SECONDS)
        await made.append("gateway-2", "last")
        await until(lambda: all(len(client.seen) >= 3 for client in clients))

        with fleet.client("gateway-2") as sdk:
            for session_id in made.sessions:
                log = await asyncio.to_thread(listed, sdk, session_id)
                views = [client.seen for client in clients if client.session_id == session_id]
                assert views == [log] * READERS_EACH

        fleet.kill("gateway-2")  # and nobody comes back
        await made.until_subscriptions(0, BACK_SECONDS)
