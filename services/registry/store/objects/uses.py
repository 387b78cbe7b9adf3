"""Counting who refers to an object, in the very transaction of the row that does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from sqlalchemy import case, update

from chassis.errors import DroverError, Reason
from services.registry.store.objects.tables import OBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

_AT_ONCE: Final = 500

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


def let_go(connection: Connection, names: Iterable[str], now: int) -> None:
    """Counts one row less for each of these; called after the rows refer to them no more.

    With its last one, an object is deleted soon after `now`, in Unix microseconds. Whoever calls
    it `wake`s the `KeptObjects` after the commit, for that to be at once.
    """
    counts = Counter(names)
    for count in {*counts.values()}:
        some = sorted(name for name, times in counts.items() if times == count)
        for start in range(0, len(some), _AT_ONCE):
            connection.execute(
                update(OBJECTS)
                .where(_O.name.in_(some[start : start + _AT_ONCE]), _O.uses >= count)
                .values(uses=_O.uses - count, delete_at=case((_O.uses == count, now), else_=None))
            )
