"""The connection below a streamed response, for bytes that many readers are written at once.

An ASGI send is a dictionary and a coroutine for each reader of each event, which together cost more
than the write. What is the same for all readers goes to their connections directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

WIRE = "drover.wire"
"""Name of the ASGI extension whose `wire` is the `Wire` of the request's connection."""


def chunk(data: bytes) -> bytes:
    """A piece of a body in chunked transfer coding (RFC 9112 §7.1), which streams are sent in.

    Nothing for nothing, since an empty chunk would end the body.
    """
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Listener(Protocol):
    """Who is told what becomes of a connection: from the event loop, or out of a `write`."""

    def paused(self) -> None:
        """The peer does not keep up: write no more."""
        ...

    def resumed(self) -> None:
        """The peer has taken what was on its way."""
        ...

    def lost(self) -> None:
        """The connection is closed."""
        ...


class Wire:
    """One HTTP connection. `write` takes bytes at any time; they are sent in order, unbounded.

    Between the start and the end of a response sent in chunks, only whole chunks may be written.
    """

    __slots__ = ("_listener", "_transport", "is_paused", "write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._listener: Listener | None = None
        self.is_paused = False
        self.write = transport.write

    @property
    def is_closed(self) -> bool:
        """Whether nothing that is written will arrive."""
        return self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the system has not taken yet."""
        return self._transport.get_write_buffer_size()

    def listen(self, listener: Listener | None) -> None:
        """Who is told from now on; None for nobody."""
        self._listener = listener

    def abort(self) -> None:
        """Cuts the connection without waiting for its peer: closing would."""
        self._transport.abort()

    def pause(self) -> None:
        """The transport's buffer is over its bounds."""
        self.is_paused = True
        if self._listener is not None:
            self._listener.paused()

    def resume(self) -> None:
        """The transport's buffer has room again."""
        self.is_paused = False
        if self._listener is not None:
            self._listener.resumed()

    def lose(self) -> None:
        """The transport is gone."""
        if self._listener is not None:
            self._listener.lost()
