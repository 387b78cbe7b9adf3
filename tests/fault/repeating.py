"""Requests whose answers get lost on the way, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic, DefaultHttpxClient

from tests.doubles.tcp_proxy import TcpProxy, Way
from tests.e2e.replicas import Replicas
from tests.e2e.stack import KEY
from tests.fault.fleet import running_fleet, serves

_RETRIES = 12
"""Enough for a service to be started anew meanwhile."""
_FRAMES = 150
"""Bytes that HTTP/2 may send of its own accord: pings, settings and their acknowledgements."""


@dataclass
class Ground:
    """Two gateways before the services: `gateway-1` behind a proxy on either side of it.

    Its client comes through `front`, and it reaches `session-1` through `back`. `gateway-2` is
    reached directly and reaches the last session service directly.
    """

    fleet: Replicas
    front: TcpProxy
    back: TcpProxy
    agent_id: str = ""
    environment_id: str = ""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    @property
    def observer(self) -> Anthropic:
        """A client that no proxy is in the way of."""
        return self.fleet.client("gateway-2", max_retries=_RETRIES)

    def new_session(self, **options: Any) -> str:
        """A session, made where nothing gets lost."""
        with self.observer as client:
            made = client.beta.sessions.create(
                agent=self.agent_id, environment_id=self.environment_id, **options
            )
        return made.id

    def messages(self, session_id: str) -> list[str]:
        """The ids of a session's messages."""
        with self.observer as client:
            events = list(client.beta.sessions.events.list(session_id))
        return [event.id for event in events if event.type == "user.message"]

    def titled(self, title: str) -> list[str]:
        """The ids of the sessions of that title."""
        with self.observer as client:
            return [one.id for one in client.beta.sessions.list() if one.title == title]


@dataclass
class Sender:
    """The official client, which repeats by its own policy, through the front proxy.

    `attempts` are the requests that it sent, `answers` what came back.
    """

    ground: Ground
    attempts: list[httpx2.Request] = field(default_factory=list)
    answers: list[httpx2.Response] = field(default_factory=list)

    def send(self, what: Callable[[Anthropic], Any]) -> Future[Any]:
        """Has the client do something, in a thread of its own."""

        def run() -> Any:
            hooks = {"request": [self.attempts.append], "response": [self.answers.append]}
            with Anthropic(
                base_url=f"http://{self.ground.front.address}",
                api_key=KEY,
                max_retries=_RETRIES,
                http_client=DefaultHttpxClient(event_hooks=hooks),
            ) as client:
                return what(client)

        return self.ground.pool.submit(run)

    def assert_replayed(self) -> None:
        """It sent the request more than once, and was given an answer that had been given."""
        assert len(self.attempts) > 1
        counts = [request.headers["x-stainless-retry-count"] for request in self.attempts]
        assert counts == [str(number) for number in range(len(counts))]
        assert self.answers[-1].headers["idempotent-replayed"] == "true"


@contextmanager
def ground_on(data: Path, database_url: str | None) -> Iterator[Ground]:
    """Runs the processes; on PostgreSQL there are two session services."""
    sessions = ("session-1", "session-2") if database_url else ("session-1",)
    with ExitStack() as stack:
        proxies: dict[str, TcpProxy] = {}

        def prepare(fleet: Replicas) -> None:
            for place, process in (("front", "gateway-1"), ("back", "session-1")):
                port = int(fleet.address(process).rpartition(":")[2])
                proxies[place] = stack.enter_context(TcpProxy(port))
            gateways = fleet.processes["gateway-1"], fleet.processes["gateway-2"]
            reached = proxies["back"].address, fleet.address(sessions[-1])
            for gateway, address in zip(gateways, reached, strict=True):
                gateway.environment["DROVER_SESSION_ADDRESS"] = address

        fleet = stack.enter_context(
            running_fleet(
                data, database_url, "registry", *sessions, "gateway-1", "gateway-2", prepare=prepare
            )
        )
        ground = Ground(fleet, proxies["front"], proxies["back"])
        stack.callback(ground.pool.shutdown)
        with ground.observer as client:
            ground.agent_id = client.beta.agents.create(model="m", name="clerk").id
            ground.environment_id = client.beta.environments.create(name="desk").id
        yield ground


@contextmanager
def made_whole(ground: Ground) -> Iterator[Ground]:
    """The ground for one test: whatever it breaks is whole again for the next one."""
    gateway = ground.fleet.address("gateway-1")
    with ground.fleet.client("gateway-1", max_retries=_RETRIES) as client:
        client.beta.sessions.list(limit=1)  # so that its connection stands when it is stalled
    try:
        yield ground
    finally:
        for proxy in (ground.front, ground.back):
            proxy.flow()
        ground.front.target = ("127.0.0.1", int(gateway.rpartition(":")[2]))
        start(
            ground.fleet, *(name for name, one in ground.fleet.processes.items() if not one.alive)
        )


def start(fleet: Replicas, *names: str) -> None:
    """Starts processes, and waits until they serve."""
    if names:
        fleet.start(*names)
        for name in names:
            fleet.wait_for(lambda name=name: serves(fleet, name), f"{name} to serve")


def holds(proxy: TcpProxy, way: Way) -> Callable[[], bool]:
    """Whether a request, or a reply, has come to the proxy and goes no further."""
    return lambda: proxy.traffic.held(way) > _FRAMES
