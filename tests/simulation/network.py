"""gRPC without a network: the same stubs, servicers and interceptor over messages that travel.

Every message is serialized, takes a time drawn from the seed, and keeps its place within its
stream, but not among streams. Connections break, stall and lose what is on the way.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Histogram

from chassis.context import DEFAULT_WORKSPACE, REQUEST_KEY, WORKSPACE_KEY, current_call
from chassis.grpc.interceptor import CallInterceptor
from chassis.secret import Secret
from tests.simulation.calls import Asked, Call, StreamEnd, UnaryEnd
from tests.simulation.loop import Life, SimLoop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from random import Random

    from tests.simulation.trace import Trace

TOKEN: Final = Secret("simulated")
KEEPALIVE: Final = 8.0
"""Seconds after which a peer that is cut off is given up (chassis.grpc.options)."""
_KINDS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@cache
def _seconds() -> Histogram:
    return Histogram("seconds", "", ["method", "code"], registry=CollectorRegistry())


class _Details:
    def __init__(self, method: str, metadata: Any) -> None:
        self.method = method
        self.invocation_metadata = metadata


class Server:
    """What a process serves. Generated code adds servicers to it as to any gRPC server."""

    def __init__(self, life: Life, interceptor: CallInterceptor) -> None:
        self.life = life
        self._interceptor = interceptor
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, _handlers: Any) -> None:
        """Not looked at: the registered ones are the same."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    async def find(self, method: str, metadata: Any) -> Any:
        async def continuation(_details: Any) -> Any:
            return self._handlers.get(method)

        return await self._interceptor.intercept_service(continuation, _Details(method, metadata))


class Link:
    """The connection between two processes."""

    def __init__(self) -> None:
        self.stalled_until = 0.0
        self.calls: dict[Call, None] = {}


class Network:
    """All connections. `hurried` is the share of messages that travel without delay."""

    def __init__(self, loop: SimLoop, rng: Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.life = Life("network")
        self.closed = False
        self.slow = 0.05
        self.failures: list[str] = []
        self._servers: dict[str, Server] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._context = self.life.context()
        self._seconds = _seconds()

    def serve(self, life: Life, ids: Callable[[str], str]) -> Server:
        """A server at the process's name, in the place of the one before."""
        server = Server(life, CallInterceptor(TOKEN, ids, self._seconds))
        self._servers[life.name] = server
        return server

    def server(self, name: str) -> Server | None:
        server = self._servers.get(name)
        gone = server is None or server.life.dead or server.life.stopping
        return None if gone else server

    def channel(self, life: Life, address: str) -> Channel:
        return Channel(self, life, address)

    def link(self, one: str, other: str) -> Link:
        names = (one, other) if one < other else (other, one)
        link = self._links.get(names)
        if link is None:
            link = self._links[names] = Link()
        return link

    @property
    def links(self) -> list[tuple[tuple[str, str], Link]]:
        return sorted(self._links.items(), key=lambda item: item[0])

    def latency(self) -> float:
        draw = self.rng.random()
        if draw < self.slow:
            return 0.01 + self.rng.random() ** 3 * 1.5
        return 0.0001 + draw * 0.002

    def at(self, when: float, callback: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self.loop.call_at(when, callback, *args, context=self._context)

    # faults

    def cut(self, one: str, other: str) -> None:
        """Breaks a connection: both ends learn of it, each in its time."""
        self.trace.note("network", "cut", one, other)
        for call in list(self.link(one, other).calls):
            call.lose(self.latency(), self.latency())

    def stall(self, one: str, other: str, seconds: float) -> None:
        """Nothing passes for a while; what takes too long breaks the connection."""
        self.trace.note("network", "stall", one, other, round(seconds, 3))
        link, now = self.link(one, other), self.loop.time()
        link.stalled_until = max(link.stalled_until, now + seconds)
        if seconds > KEEPALIVE:
            self.at(now + KEEPALIVE, self.cut, one, other)

    def shut(self, life: Life) -> None:
        """A process stops to serve, as one does that is told to stop: its calls are cancelled."""
        life.stopping = True
        for _, link in self.links:
            for call in list(link.calls):
                if call.served_by is life:
                    call.abandon()

    def forget(self, life: Life) -> None:
        """A process is gone: whoever spoke with it learns so."""
        for names, link in self.links:
            if life.name in names:
                for call in list(link.calls):
                    if life in (call.client, call.served_by):
                        call.lose(self.latency(), self.latency())

    def heal(self) -> None:
        for _, link in self.links:
            link.stalled_until = 0.0


class Channel:
    """As much of `grpc.aio.Channel` as generated stubs use, wrapped as `open_channel` does."""

    def __init__(self, network: Network, life: Life, address: str) -> None:
        self._network = network
        self._life = life
        self._address = address

    def __getattr__(self, kind: str) -> Any:
        if kind not in _KINDS:
            raise AttributeError(kind)

        def make(
            method: str, request_serializer: Any, response_deserializer: Any, **_: Any
        ) -> Callable[..., Any]:
            def call(
                request: Any = None, *, timeout: float | None = None, metadata: Any = (), **_: Any
            ) -> Any:
                current = current_call()
                pairs = [
                    ("authorization", f"Bearer {TOKEN.open()}"),
                    (WORKSPACE_KEY, current.workspace_id or DEFAULT_WORKSPACE),
                    *metadata,
                ]
                if current.request_id:
                    pairs.append((REQUEST_KEY, current.request_id))
                codec = request_serializer, response_deserializer
                asked = Asked(self._address, method, kind, pairs, codec)
                made = Call(self._network, self._life, asked)
                if timeout is None and kind == "unary_unary":
                    timeout = 30.0
                made.begin(request, timeout)
                return UnaryEnd(made) if kind == "unary_unary" else StreamEnd(made)

            return call

        return make
