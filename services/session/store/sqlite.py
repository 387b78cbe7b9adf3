"""SQLite: the file is this process's own, so nothing is locked, and a statement costs no wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.store import sessions
from services.session.store.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from services.session.domain.ports import About
    from services.session.store.sessions import SessionRow


class SqliteEngine:
    """See `engine.Engine`. The time is this process's `clock`."""

    parallel = 1

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def reading(self, connection: Connection) -> Unit:
        """A unit of one transaction that reads."""
        return Unit(connection, _fetch, self._time)

    def writing(
        self, connection: Connection, _abouts: Sequence[About], *, wait: bool, hopeful: bool
    ) -> tuple[Unit, Collection[str]]:
        """A unit of transactions. What they are about is asked for when they ask."""
        del wait
        return Unit(connection, _fetch, self._time, shared=True, hopeful=hopeful), ()

    def _time(self, _connection: Connection) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


def _fetch(unit: Unit, session_id: str) -> SessionRow | None:
    return sessions.get(unit.connection, session_id)
