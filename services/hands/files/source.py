"""Taking bytes from the registry to a file that is nobody's yet, with all that may go wrong."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.hands.bringing import beneath
from services.hands.bringing.bringer import NotBrought

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from chassis.clock import Clock

_TELL_SECONDS: Final = 10.0
_AT_ONCE: Final = 1 << 20
"""Bytes that are gathered before they are written: what comes may come in small pieces."""
_MIB: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = structlog.get_logger("hands.bringing")


class Source:
    """Writes what comes. `free_bytes` must stay free on the disk."""

    def __init__(self, clock: Clock, *, free_bytes: int) -> None:
        self._clock = clock
        self._free_bytes = free_bytes

    async def save(
        self,
        pieces: AsyncIterator[bytes],
        most: int,
        digest: str,
        place: tuple[Path, str],
        *,
        size: int = 0,
    ) -> None:
        """Makes a new file of all that comes, in a directory and of a name.

        `most` are bytes that it may have, `size` those that it has, where that is known. Raises
        `NotBrought`, also where it is not what its SHA-256 says; what is there of it then is the
        caller's to delete.
        """
        directory, name = place
        try:
            await asyncio.to_thread(self._check_room, directory, size)
            descriptor = await asyncio.to_thread(_make, directory, name)
            try:
                found = await self._copy(pieces, descriptor, most, place)
            finally:
                os.close(descriptor)
        except DroverError as error:
            raise not_had(error) from error
        except OSError as error:
            raise _not_written(error) from error
        if found != digest:
            raise NotBrought("what came of it is not what was stored", away=True)

    async def _copy(
        self, pieces: AsyncIterator[bytes], descriptor: int, most: int, place: tuple[Path, str]
    ) -> str:
        """The SHA-256 of all that came."""
        digest, count, waiting = hashlib.sha256(), 0, bytearray()
        said = self._clock.monotonic()

        def write(data: bytearray) -> None:
            digest.update(data)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]

        async for piece in pieces:
            count += len(piece)
            if count > most:
                raise NotBrought("it is larger than it may be", away=False)
            waiting += piece
            if len(waiting) < _AT_ONCE:
                continue
            await _written(write, waiting)
            waiting = bytearray()
            if self._clock.monotonic() - said > _TELL_SECONDS:
                said = self._clock.monotonic()
                directory, name = place
                _log.info("on_its_way", file=name, bytes=count)
                await asyncio.to_thread(self._check_room, directory, 0)
        await _written(write, waiting)
        return digest.hexdigest()

    def _check_room(self, directory: Path, size: int) -> None:
        system = os.statvfs(directory)
        free = system.f_bavail * system.f_frsize - self._free_bytes
        if size > free:
            raise NotBrought(
                f"the disk is almost full: {-(-size // _MIB)} MiB are needed, and "
                f"{max(0, free) // _MIB} MiB are left",
                away=True,
            )


async def _written(write: Callable[[bytearray], None], data: bytearray) -> None:
    """Writes in a thread, and waits for that in any case: the file is closed afterwards."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, data))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


def _make(directory: Path, name: str) -> int:
    with beneath.opened(directory) as place:
        return os.open(name, beneath.MAKE, 0o600, dir_fd=place)


def not_had(error: DroverError) -> NotBrought:
    """What is told of bytes that could not be had."""
    if error.reason is Reason.NOT_FOUND:
        return NotBrought(error.message, away=False)
    return NotBrought(f"the registry has not given it: {error.message}", away=error.rule.retryable)


def _not_written(error: OSError) -> NotBrought:
    if error.errno in _FULL:
        return NotBrought("the disk is full", away=True)
    return NotBrought(error.strerror or str(error), away=False)
