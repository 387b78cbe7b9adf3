"""Time as a port, so that leases, deadlines and stamps are tested without waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""
        return time.monotonic()
