"""What the parts of a transaction have in common: its unit, and what the database is to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.store.unit import Known
from services.session.store.writes import Writes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from services.session.store.unit import Unit


class Part:
    """One transaction of a unit. What it writes waits in memory until a statement must see it."""

    __slots__ = ("_known", "_unit", "_writes")

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._known = Known()
        self._writes = Writes()

    def now(self) -> int:
        """The database's time."""
        return self._unit.now()

    @property
    def _both(self) -> tuple[Writes, Writes]:
        """What was written before this transaction, and by it."""
        return self._unit.writes, self._writes

    def _told(self, *pending: object) -> Connection:
        """The connection, once the database was told what a statement must see.

        That is everything, if any of `pending` is something.
        """
        if any(pending):
            self._unit.settle(self._writes)
        return self._unit.connection

    def _settled(self) -> Connection:
        """The connection for a statement that writes at once, and can be undone by the unit."""
        self._unit.settle(self._writes)
        return self._unit.connection
