"""One hands process at a time in a directory: another's sandboxes are no leftovers."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS: Final = 5.0
_PAUSE: Final = 0.05


async def hold(path: Path) -> int:
    """Holds a directory for this process; the descriptor's end gives it back.

    Raises `CannotStartError` when another process holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                os.close(fd)
                msg = (
                    f"another hands service is at work in {path.parent}: give each a directory of "
                    "its own (DROVER_DATA_DIR), in containers a volume (HANDS_VOLUME)"
                )
                raise CannotStartError(msg) from error
            await asyncio.sleep(_PAUSE)  # one that was told to stop may still be at it
        else:
            return fd
