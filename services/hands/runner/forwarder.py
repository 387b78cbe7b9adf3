"""The sandbox's end of its way out: whatever connects to it is forwarded to one unix socket.

It knows nothing of HTTP and decides nothing: what listens at that socket does. It is a thread of
the agent, since `kill(-1)` must not end it, and it polls its own descriptors, so that what is
downloaded delays no call. `_socket`, for `socket` is slow to import.
"""

from __future__ import annotations

import _socket
import _thread
import select
import time

from services.hands.runner.failure import ignoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_BACKLOG: Final = 128
_MOST: Final = 256
"""Connections at once; more wait to be accepted."""
_CHUNK: Final = 64 * 1024
"""Bytes that wait for a slow reader, each way of a connection; no more is read meanwhile."""
_PAUSE: Final = 0.05
"""Seconds until an accept that failed for want of descriptors is tried again."""


class _Way:
    """One direction of a connection."""

    __slots__ = ("ended", "source", "target", "told", "waiting")

    def __init__(self, source: _socket.socket, target: _socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = memoryview(b"")
        self.ended = False
        self.told = False

    def move(self) -> None:
        """Sends what waits, or else reads once. Raises `OSError` when an end is gone."""
        if not self.waiting and not self.ended:
            with ignoring(BlockingIOError):
                data = self.source.recv(_CHUNK)
                self.ended = not data
                self.waiting = memoryview(data)
        if self.waiting:
            with ignoring(BlockingIOError):
                self.waiting = self.waiting[self.target.send(self.waiting) :]
        if self.ended and not self.waiting and not self.told:
            self.told = True
            self.target.shutdown(_socket.SHUT_WR)


class _Pair:
    """A connection: the program's end, and the one to the unix socket."""

    __slots__ = ("inner", "outer", "ways")

    def __init__(self, inner: _socket.socket, outer: _socket.socket) -> None:
        self.inner = inner
        self.outer = outer
        self.ways = (_Way(inner, outer), _Way(outer, inner))

    @property
    def done(self) -> bool:
        return self.ways[0].told and self.ways[1].told

    def interest(self, one: _socket.socket) -> int:
        """What one of its ends is to be polled for."""
        events = 0
        for way in self.ways:
            if way.source is one and not way.waiting and not way.ended:
                events |= select.POLLIN
            if way.target is one and way.waiting:
                events |= select.POLLOUT
        return events


class Forwarder:
    """Listens at a port of the loopback, and connects to `path` for whoever connects there."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._listener: _socket.socket | None = None
        self._pairs: dict[int, _Pair] = {}
        self._polled: dict[int, int] = {}
        self._poll = select.poll()
        self.running = False

    def start(self) -> None:
        """Listens from now on, unless it does already. What fails is tried again the next time."""
        if self.running:
            return
        # RuntimeError: a command has taken every thread that there may be, or its own the port.
        with ignoring(OSError, RuntimeError):
            if self._listener is None:
                self._listener = _listening(self._port)
            _thread.start_new_thread(self._serve, ())
            self.running = True

    def _serve(self) -> None:
        with ignoring(Exception):  # told to nobody: its standard error is the agent's stream
            while True:
                with ignoring(Exception):  # want of memory, say
                    self._forward()
                self._drop_all()
        self.running = False

    def _forward(self) -> None:
        assert self._listener is not None  # noqa: S101  # `start` has made it
        listener = self._listener.fileno()
        while True:
            self._watch(listener, select.POLLIN if len(self._pairs) < 2 * _MOST else 0)
            for fd, _ in self._poll.poll():
                if fd == listener:
                    self._accept(self._listener)
                elif (pair := self._pairs.get(fd)) is not None:
                    self._move(pair)

    def _accept(self, listener: _socket.socket) -> None:
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001  # `socket`'s own way
        except BlockingIOError:
            return
        except OSError:
            time.sleep(_PAUSE)
            return
        inner = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, fd)
        outer = None
        try:
            inner.setblocking(False)
            inner.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            outer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            outer.setblocking(False)
            outer.connect(self._path)  # done at once, or not at all
        except OSError:
            inner.close()
            if outer is not None:
                outer.close()
            return
        pair = _Pair(inner, outer)
        self._pairs[inner.fileno()] = self._pairs[outer.fileno()] = pair
        self._move(pair)

    def _move(self, pair: _Pair) -> None:
        try:
            for way in pair.ways:
                way.move()
        except OSError:
            self._drop(pair)
            return
        if pair.done:
            self._drop(pair)
            return
        for one in (pair.inner, pair.outer):
            self._watch(one.fileno(), pair.interest(one))

    def _watch(self, fd: int, events: int) -> None:
        # One that is polled for nothing would still be told of as hung up, over and over.
        if self._polled.get(fd, 0) == events:
            return
        if events:
            self._poll.register(fd, events)
            self._polled[fd] = events
        else:
            self._poll.unregister(fd)
            del self._polled[fd]

    def _drop(self, pair: _Pair) -> None:
        for one in (pair.inner, pair.outer):
            self._watch(one.fileno(), 0)
            self._pairs.pop(one.fileno(), None)
            one.close()

    def _drop_all(self) -> None:
        pairs, self._pairs = self._pairs, {}
        self._poll, self._polled = select.poll(), {}
        for pair in pairs.values():
            pair.inner.close()
            pair.outer.close()


def _listening(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
