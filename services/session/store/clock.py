"""The time of a database that has no clock of its own.

An SQLite file goes by the clock of the machine, which may be set: an hour ahead, and every lease
would be over; an hour back, and none would ever be. So what has passed since is measured by a clock
that nobody sets, and the machine's is followed slowly.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from services.session.domain.lease import LEASE_MICROS
from services.session.domain.session import MICROS
from services.session.store.tables import sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from storage import Database

_SLEW: Final = 0.1
"""By how much of what passes the time may be off, to get to the machine's again."""

_LATEST: Final = select(
    func.max(
        func.coalesce(func.max(sessions.c.head_at), 0),
        func.coalesce(func.max(sessions.c.updated_at), 0),
        func.coalesce(func.max(sessions.c.lease_expires_at), LEASE_MICROS) - LEASE_MICROS,
    )
)


def since_boot() -> float:
    """Seconds that nobody sets, those asleep among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Time that never jumps, begun at the machine's, but no earlier than `floor`."""

    def __init__(
        self, clock: Clock, floor: datetime, *, passed: Callable[[], float] = since_boot
    ) -> None:
        self._clock = clock
        self._passed = passed
        self._at = passed()
        self._now = max(clock.now(), floor)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        with self._lock:
            at = self._passed()
            passed, self._at = timedelta(seconds=at - self._at), at
            expected = self._now + passed
            most = passed * _SLEW
            apart = self._clock.now() - expected
            self._now = expected + max(-most, min(apart, most))
            return self._now

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""
        return self._clock.monotonic()


async def steady(database: Database, clock: Clock) -> SteadyClock:
    """The time of an SQLite database: never before what is written in it."""
    latest = await database.read(_latest)
    return SteadyClock(clock, datetime.fromtimestamp(latest / MICROS, UTC))


def _latest(connection: Connection) -> int:
    return int(connection.execute(_LATEST).scalar_one())
