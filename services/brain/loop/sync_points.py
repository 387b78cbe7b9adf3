"""Named places in a turn where a test may hold a brain, or kill it."""

from __future__ import annotations

import asyncio
import os
import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Point(StrEnum):
    """The places, in the order in which a turn comes by."""

    WOKEN = "woken"
    LEASE_OPENED = "lease_opened"
    BEFORE_TAKE = "before_take"
    INPUT_TAKEN = "input_taken"
    BEFORE_REQUEST = "before_request"
    FIRST_MODEL_EVENT = "first_model_event"
    RESPONSE_COMPLETE = "response_complete"
    JUDGED = "judged"
    SUMMARISED = "summarised"
    RESPONSE_DURABLE = "response_durable"
    TOOLS_SENT = "tools_sent"
    TOOL_FINISHED = "tool_finished"
    CONTROL_TAKEN = "control_taken"
    INTERRUPT_SEEN = "interrupt_seen"
    BEFORE_RETRY = "before_retry"
    BEFORE_GIVING_UP = "before_giving_up"
    BEFORE_IDLE = "before_idle"
    RELEASED = "released"


class SyncPoints(Protocol):
    """Told whenever a brain comes by a point."""

    async def reach(self, point: Point) -> None:
        """Returns when the brain may go on."""
        ...


class NoSyncPoints:
    """Lets every brain go on."""

    async def reach(self, point: Point) -> None:
        """Returns at once."""


class FileSyncPoints:
    """Steered by files, for tests that drive a real process; see `BrainSettings.sync_points`.

    With `<point>.kill` in the directory the process kills itself at that point, once: the file is
    removed first. With `<point>.pause` it makes `<point>.reached`, and goes on when the file is
    gone.
    """

    def __init__(self, directory: Path, poll_seconds: float = 0.005) -> None:
        self._directory = directory
        self._poll_seconds = poll_seconds

    async def reach(self, point: Point) -> None:
        """Kills the process, or waits, if a file says so."""
        await asyncio.to_thread(self._kill, point)
        pause = self._directory / f"{point}.pause"
        if await asyncio.to_thread(pause.exists):
            reached = self._directory / f"{point}.reached"
            await asyncio.to_thread(reached.touch)
            while await asyncio.to_thread(pause.exists):  # noqa: ASYNC110  # another process removes it
                await asyncio.sleep(self._poll_seconds)

    def _kill(self, point: Point) -> None:
        try:
            (self._directory / f"{point}.kill").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
