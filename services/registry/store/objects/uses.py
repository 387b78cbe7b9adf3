"""Counting who refers to an object, in the very transaction of the row that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, update

from chassis.errors import DroverError, Reason
from services.registry.store.objects.tables import OBJECTS

if TYPE_CHECKING:
    from sqlalchemy import Connection

_O = OBJECTS.c


def hold(connection: Connection, name: str) -> None:
    """Counts one more row that refers to an object; called before that row is written.

    Raises UNAVAILABLE for one that is gone, or about to be: it took too long to be stored.
    """
    # Fence: a doomed object may be gone already.
    held = (
        update(OBJECTS)
        .where(_O.name == name, _O.doomed.is_(False))
        .values(uses=_O.uses + 1, delete_at=None)
    )
    if connection.execute(held).rowcount == 0:
        raise DroverError(Reason.UNAVAILABLE, "the bytes took too long to be stored, try again")


def let_go(connection: Connection, name: str, now: int) -> None:
    """Counts one row less; called after that row was deleted, or refers to it no more.

    With the last one, the object is deleted soon after `now`, in Unix microseconds. Whoever calls
    it `wake`s the `KeptObjects` after the commit, for it to be at once.
    """
    connection.execute(
        update(OBJECTS)
        .where(_O.name == name, _O.uses > 0)
        .values(uses=_O.uses - 1, delete_at=case((_O.uses == 1, now), else_=None))
    )
