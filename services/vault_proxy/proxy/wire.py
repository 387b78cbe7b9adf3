"""One side's connection: what has come in, what goes out, back pressure and deadlines both ways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

_HIGH: Final = 256 * 1024
"""Bytes that wait to be read before the other side is made to wait."""
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 1024 * 1024


class LostError(ConnectionError):
    """The connection broke, or ended where more was due."""


class LateError(TimeoutError):
    """Nothing came, or nothing could be sent, until the deadline."""


class Wire(asyncio.Protocol):
    """A connection with a buffer. One task reads it, and one writes.

    Deadlines are times of the loop's clock.
    """

    def __init__(self, made: Callable[[Wire], None] | None = None) -> None:
        self._made = made
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._ended = False
        self._lost: Exception | None = None
        self._gone = False
        self._secure = False
        self._paused_reading = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._writable = True
        self.on_gone: Callable[[], None] | None = None
        """Called once when the connection is no more."""

    # ---- what the loop tells ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast("asyncio.Transport", transport)
        if self._made is not None:
            made, self._made = self._made, None
            made(self)

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self._buffer += data
        if self._reader is not None:
            self._wake_reader()
        if len(self._buffer) > _HIGH and not self._paused_reading:
            self._paused_reading = True
            self._open.pause_reading()

    def eof_received(self) -> bool:  # noqa: D102
        self._ended = True
        self._wake_reader()
        return not self._secure  # plain connections may go on to be written to

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._ended = self._gone = True
        self._lost = exc
        self._wake_reader()
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
        if self.on_gone is not None:
            told, self.on_gone = self.on_gone, None
            told()

    def pause_writing(self) -> None:  # noqa: D102
        self._writable = False

    def resume_writing(self) -> None:  # noqa: D102
        self._writable = True
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    # ---- reading ----

    @property
    def waiting(self) -> bytearray:
        """What has come in and was not taken. To be looked at only."""
        return self._buffer

    @property
    def idle(self) -> bool:
        """Whether it is open both ways, with nothing come in."""
        return not (self._ended or self._buffer)

    @property
    def gone(self) -> bool:
        """Whether the connection is no more."""
        return self._gone

    async def more(self, until: float) -> bool:
        """Waits until more has come in; false at the end. Raises `LostError`, `LateError`."""
        if self._ended:
            if self._lost is not None:
                raise LostError from self._lost
            return False
        if self._paused_reading:
            self._paused_reading = False
            self._open.resume_reading()
        before = len(self._buffer)
        waiter = self._reader = self._loop.create_future()
        alarm = self._loop.call_at(until, _expire, waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            self._reader = None
        if len(self._buffer) > before:
            return True
        return await self.more(until)  # the end

    def take(self, most: int) -> bytes:
        """Takes so many bytes at most of what has come in."""
        if len(self._buffer) <= most:
            taken = bytes(self._buffer)
            self._buffer.clear()
        else:
            taken = bytes(self._buffer[:most])
            del self._buffer[:most]
        if self._paused_reading and len(self._buffer) <= _HIGH // 2 and not self._gone:
            self._paused_reading = False
            self._open.resume_reading()
        return taken

    async def some(self, most: int, until: float) -> bytes:
        """Some bytes, empty at the end. Raises `LostError`, `LateError`."""
        if not self._buffer and not await self.more(until):
            return b""
        return self.take(most)

    # ---- writing ----

    def write(self, data: bytes) -> None:
        """Sends, without waiting. Raises `LostError`."""
        if self._gone:
            raise LostError from self._lost
        self._open.write(data)

    async def drain(self, until: float) -> None:
        """Waits until more may be sent. Raises `LostError`, `LateError`."""
        if self._gone:
            raise LostError from self._lost
        if self._writable:
            return
        waiter = self._writer = self._loop.create_future()
        alarm = self._loop.call_at(until, _expire, waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            self._writer = None
        if self._gone:
            raise LostError from self._lost

    def finish(self) -> None:
        """Says that no more will be sent."""
        if self._gone:
            return
        if self._secure:
            self._open.close()
        elif self._open.can_write_eof():
            self._open.write_eof()

    # ---- the connection itself ----

    async def secure(self, context: ssl.SSLContext, *, within: float) -> ssl.SSLObject:
        """Goes on in TLS, as the server. Raises `OSError` (`ssl.SSLError`) and `LostError`."""
        self._secure = True
        transport = await self._loop.start_tls(
            self._open, self, context, server_side=True, ssl_handshake_timeout=within
        )
        if transport is None:
            raise LostError
        self._transport = transport
        # what was told of the plain connection does not hold for this one
        self._writable = True
        return cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))

    def secured(self) -> None:
        """Notes that the connection was opened in TLS."""
        self._secure = True

    def close(self) -> None:
        """Closes once all is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once: whoever waits for more learns that something broke."""
        if self._transport is not None:
            self._transport.abort()

    async def linger(self) -> None:
        """Closes so that an answer is read by a peer that is still sending (RFC 9112 §9.6).

        A socket closed over unread bytes resets the connection, answer and all.
        """
        try:
            self.finish()
            until, left = self._loop.time() + _LINGER_SECONDS, _LINGER_BYTES
            while left > 0 and (got := await self.some(left, until)):
                left -= len(got)
        except (LostError, LateError):
            pass
        finally:
            self.close()

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101  # nobody has a wire before it is made
        return self._transport

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(LateError())
