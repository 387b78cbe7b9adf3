"""One call and its two ends, as much of gRPC's as the stubs and the servicers use."""

from __future__ import annotations

import asyncio
import sys
import traceback
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.simulation.loop import Life, SimLoop
    from tests.simulation.network import Network, Server

DIAL: Final = 2.0
"""Seconds until it is given up to reach a peer."""
_OK = grpc.StatusCode.OK

Status = tuple[grpc.StatusCode, str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is called, and how. `codec` writes requests and reads responses."""

    address: str
    method: str
    kind: str
    metadata: Any
    codec: tuple[Any, Any]


class Call:
    """One call: what travels between its two ends."""

    def __init__(self, network: Network, client: Life, asked: Asked) -> None:
        self.network = network
        self.client = client
        self.served_by: Life | None = None
        self.name = asked.method.rpartition("/")[2]
        self.metadata = asked.metadata
        self.codec = asked.codec
        self._asked = asked
        self._link = network.link(client.name, asked.address)
        self._up = self._down = 0.0
        self._lost = False
        self._task: asyncio.Task[Any] | None = None
        self._limit: asyncio.TimerHandle | None = None
        # the client's end
        self.inbox: deque[bytes] = deque()
        self.status: Status | None = None
        self.initial: Any = None
        self.changed = _Signal(network.loop)
        # the server's end
        self.requests: deque[bytes] = deque()
        self.arrived = _Signal(network.loop)
        self._trailers: Any = ()
        self.closed = False

    # from the client

    def begin(self, request: Any, timeout: float | None) -> None:
        self._link.calls[self] = None
        data = None if request is None else self.codec[0](request)
        net, now = self.network, self.network.loop.time()
        if net.closed:
            net.loop.call_soon(self._end, _unavailable("the simulation is over"))
            return
        if self._link.stalled_until > now + DIAL:
            net.at(now + DIAL, self._end, _unavailable("nobody answers"))
            return
        self._travel_up(self._open, data)
        if timeout is not None:
            self._limit = net.at(now + timeout, self._expire)

    def send(self, message: Any) -> None:
        self._travel_up(self._receive, self.codec[0](message))

    def cancel(self) -> bool:
        """The client lets go of it."""
        if self.status is not None:
            return False
        self._end((grpc.StatusCode.CANCELLED, "by the client", ()))
        self._travel_up(self._stop, None)
        return True

    def _travel_up(self, deliver: Any, data: bytes | None) -> None:
        self._up = self._travel(self._up, deliver, data)

    def _travel(self, last: float, deliver: Any, *args: Any) -> float:
        net = self.network
        start = max(net.loop.time(), self._link.stalled_until)
        when = max(last, start + net.latency())
        net.at(when, self._deliver, deliver, *args)
        return when

    def _deliver(self, deliver: Any, *args: Any) -> None:
        if not self._lost:
            deliver(*args)

    # at the server

    def _open(self, data: bytes | None) -> None:
        server = self.network.server(self._asked.address)
        if server is None:
            self._down = self._travel(self._down, self._end, _unavailable("refused"))
            return
        self.served_by = server.life
        if data is not None:
            self.requests.append(data)
        self._note("->", data)
        self._task = self.network.loop.spawn(server.life, self._serve(server))

    def _receive(self, data: bytes) -> None:
        self._note("->", data)
        self.requests.append(data)
        self.arrived.set()

    def _stop(self, _data: None) -> None:
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """The server cancels it."""
        self._stop(None)

    async def _serve(self, server: Server) -> None:
        context = ServerContext(self)
        try:
            handler = await server.find(self._asked.method, self.metadata)
            behavior = getattr(handler, self._asked.kind)
            request = self._each() if handler.request_streaming else self.requests.popleft()
            response = await behavior(request, context)
            if self._asked.kind == "unary_unary":
                self.reply(handler.response_serializer(response))
            self.conclude((_OK, "", self._trailers))
        except grpc.aio.AbortError:
            pass  # `abort` has said it
        except asyncio.CancelledError:
            self.conclude((grpc.StatusCode.CANCELLED, "by the server", ()))
            raise

    async def _each(self) -> AsyncIterator[bytes]:
        while True:
            while not self.requests:
                await self.arrived.wait()
            yield self.requests.popleft()

    def respond(self, message: Any) -> None:
        self.reply(message.SerializeToString())

    def reply(self, data: bytes) -> None:
        if not self.closed:
            self._down = self._travel(self._down, self._take, data)

    def conclude(self, status: Status) -> None:
        if not self.closed:
            self.closed = True
            self._down = self._travel(self._down, self._end, status)

    def tell(self, initial: Any) -> None:
        self._down = self._travel(self._down, self._told, initial)

    # at the client

    def _take(self, data: bytes) -> None:
        self._note("<-", data)
        self.inbox.append(data)
        self.changed.set()

    def _told(self, initial: Any) -> None:
        self.initial = initial
        self.changed.set()

    def _end(self, status: Status) -> None:
        if self.status is None:
            self.status = status
            if status[0] is not _OK:
                self._note("xx", status[0].name.encode())
            self._link.calls.pop(self, None)
            if self._limit is not None:
                self._limit.cancel()
            self.changed.set()

    def _expire(self) -> None:
        if self.status is None:
            self._end((grpc.StatusCode.DEADLINE_EXCEEDED, "", ()))
            self._stop(None)

    # faults

    def lose(self, client_after: float, server_after: float) -> None:
        """The connection that carries it is gone, with what was on the way."""
        now = self.network.loop.time()
        self._lost = True
        self._link.calls.pop(self, None)
        self.network.at(now + client_after, self._end, _unavailable("the connection broke"))
        self.network.at(now + server_after, self._stop, None)

    def _note(self, way: str, data: bytes | None) -> None:
        length, check = (0, 0) if data is None else (len(data), zlib.crc32(data))
        about = data.decode() if way == "xx" and data else f"{length}:{check:08x}"
        ends = f"{self.client!r}>{self.served_by or self._asked.address}"
        self.network.trace.note("network", way, self.name, ends, about)


class _Signal:
    """Wakes the one who waits."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class UnaryEnd:
    """The client's end of a call with one answer."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        call = self._call
        try:
            while call.status is None:
                await call.changed.wait()
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.status[0] is not _OK:
            raise _error(call.status)
        return call.codec[1](call.inbox[0])

    def cancel(self) -> bool:
        return self._call.cancel()

    async def trailing_metadata(self) -> Any:
        return () if self._call.status is None else self._call.status[2]


class StreamEnd:
    """The client's end of a stream."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def read(self) -> Any:
        call = self._call
        while not call.inbox:
            if call.status is not None:
                code = call.status[0]
                if code is _OK:
                    return grpc.aio.EOF
                if code is grpc.StatusCode.CANCELLED:
                    raise asyncio.CancelledError
                raise _error(call.status)
            try:
                await call.changed.wait()
            except asyncio.CancelledError:
                call.cancel()
                raise
        return call.codec[1](call.inbox.popleft())

    async def write(self, message: Any) -> None:
        call = self._call
        await asyncio.sleep(0)
        if call.status is not None:
            if call.status[0] is grpc.StatusCode.UNAVAILABLE:
                raise _error(call.status)
            msg = "the call has ended"
            raise asyncio.InvalidStateError(msg)
        call.send(message)

    def cancel(self) -> bool:
        return self._call.cancel()


class ServerContext:
    """As much of `grpc.aio.ServicerContext` as the services use."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def invocation_metadata(self) -> Any:
        return self._call.metadata

    async def send_initial_metadata(self, metadata: Any) -> None:
        self._call.tell(metadata)

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._call._trailers = metadata

    async def write(self, message: Any) -> None:
        await asyncio.sleep(0)
        self._call.respond(message)

    async def abort(self, code: Any, details: str, trailers: Any) -> None:
        if code is grpc.StatusCode.INTERNAL:
            cause = "".join(traceback.format_exception(sys.exception())[-6:])
            self._call.network.failures.append(f"{self._call.name}: {cause}")
        self._call.conclude((code, details, trailers))
        raise grpc.aio.AbortError


def _unavailable(why: str) -> Status:
    return grpc.StatusCode.UNAVAILABLE, why, ()


def _error(status: Status) -> grpc.aio.AioRpcError:
    code, details, trailers = status
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=details
    )
