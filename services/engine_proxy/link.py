"""One connection: bytes that wait to be read, or that go straight on to another connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_WAITING: Final = 256 * 1024


class LinkLostError(Exception):
    """The other side is gone."""


class Link(asyncio.Protocol):
    """A connection. `opened` is called with it once it is there."""

    def __init__(self, opened: Callable[[Link], None] | None = None) -> None:
        self._opened = opened
        self._waiting = bytearray()
        self._ended = False
        self._lost = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._peer: Link | None = None

    async def receive(self) -> bytes:
        """What has come, as soon as there is something; empty at the end."""
        while not self._waiting and not self._ended:
            self._news.clear()
            await self._news.wait()
        found = bytes(self._waiting)
        self._waiting.clear()
        self.resume()
        return found

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the other side takes nothing. Raises `LinkLostError`."""
        if self._lost:
            raise LinkLostError
        self._transport.write(data)
        await self._may_write.wait()
        if self._lost:
            raise LinkLostError

    async def ended(self) -> None:
        """Waits until the other side says nothing more. Nothing must be receiving meanwhile."""
        while not self._ended:
            self._news.clear()
            await self._news.wait()

    async def joined(self, other: Link, *, early: bytes, late: bytes) -> None:
        """Passes bytes both ways until both ends have ended, or either is lost.

        `early` has come from this one and not been read, `late` from the other.
        """
        self.pass_to(other, early)
        other.pass_to(self, late)
        await self.gone()
        await other.gone()

    async def gone(self) -> None:
        """Waits until it is closed."""
        await self._closed.wait()

    def pass_to(self, peer: Link, first: bytes) -> None:
        """From now on what comes goes to `peer`, after `first` and what waits to be read."""
        self._peer = peer
        peer.write(first + bytes(self._waiting))
        self._waiting.clear()
        if self._lost:
            peer.close()
            return
        if peer.takes:
            self.resume()
        if self._ended:
            self._pass_end(peer)

    @property
    def takes(self) -> bool:
        """Whether what is written goes on, and does not pile up."""
        return self._may_write.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether the other side says nothing more."""
        return self._ended

    def write(self, data: bytes) -> None:
        """Sends, however slow the other side is; nothing happens where it is lost."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def finish(self) -> None:
        """Tells the other side that nothing more comes."""
        with suppress(OSError):  # it is going as it is
            if not self._transport.is_closing():
                self._transport.write_eof()

    def pause(self) -> None:
        """Has the other side wait."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Has it go on."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Closes it once what was sent is gone."""
        self._transport.close()

    def abort(self) -> None:
        """Closes it at once."""
        self._transport.abort()

    def _pass_end(self, peer: Link) -> None:
        """This side has said all. Once both have, they are closed."""
        if peer.has_ended:
            peer.close()
            self.close()
        else:
            peer.finish()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)
        if self._opened is not None:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if self._peer is not None:
            self._peer.write(data)
            return
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING:
            self.pause()
        self._news.set()

    def eof_received(self) -> bool:
        """The other side says nothing more; it may still listen."""
        self._ended = True
        self._news.set()
        if self._peer is not None:
            self._pass_end(self._peer)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # lost is lost
        """It is gone."""
        self._ended = self._lost = True
        self._news.set()
        self._may_write.set()
        self._closed.set()
        if self._peer is not None:
            self._peer.close()

    def pause_writing(self) -> None:
        """The other side is slow to take."""
        self._may_write.clear()
        if self._peer is not None:
            self._peer.pause()

    def resume_writing(self) -> None:
        """It has taken."""
        self._may_write.set()
        if self._peer is not None:
            self._peer.resume()
