"""Two connections that are one: what comes from either goes to the other, and nothing is looked at.

Who reads slowly slows who writes; who has ended its half may still read the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

HELD: Final = 64 * 1024
"""Bytes that wait for a slow reader before no more is read, but for one read's worth."""


class End(asyncio.Protocol):
    """One end. What it receives before it is joined with another is held, and no more is read."""

    def __init__(self, passed: Callable[[int], None]) -> None:
        self._passed = passed
        self._other: End | None = None
        self._early = bytearray()
        self.ended = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes charge of the connection."""
        # Not asked for: uvloop's, which do all that these do, are of another class.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HELD)

    def join(self, other: End) -> None:
        """Has both ends be one connection from now on."""
        self._other, other._other = other, self
        self.release()
        other.release()

    def data_received(self, data: bytes) -> None:
        """Passes it on."""
        if self._other is None:
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()
        elif self._other.transport is not None:
            self._passed(len(data))
            self._other.transport.write(data)

    def eof_received(self) -> bool:
        """Tells the other end; this one stays open for what that still has to say."""
        self.ended = True
        if self._other is not None:
            self._end_other()
        return True

    def pause_writing(self) -> None:
        """This end is slow: nothing more is read for it."""
        if self._other is not None and self._other.transport is not None:
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._other is not None and self._other.transport is not None:
            self._other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the other end with it; whatever it still has to write is written first."""
        self.transport = None
        if self._other is None or self._other.transport is None:
            return
        if error is None:
            self._other.transport.close()
        else:
            self._other.transport.abort()

    def abort(self) -> None:
        """Cuts the connection, and the other with it."""
        for one in (self, self._other):
            if one is not None and one.transport is not None:
                one.transport.abort()

    def release(self) -> None:
        """Passes on what was held."""
        if self._early:
            data, self._early = bytes(self._early), bytearray()
            self.data_received(data)
        if self.ended:
            self._end_other()
        elif self.transport is not None:
            self.transport.resume_reading()

    def _end_other(self) -> None:
        other = self._other
        if other is None or other.transport is None:
            return
        if other.ended:  # both have said all that they had to say
            other.transport.close()
            if self.transport is not None:
                self.transport.close()
        elif not other.transport.is_closing():
            other.transport.write_eof()
