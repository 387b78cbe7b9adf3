"""Rows of several sessions named in one statement, for PostgreSQL, where each costs a round trip.

Lists travel as arrays: the statement stays the same however many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import String, bindparam, column, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import ARRAY

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement, Select

Pair = tuple[str, str]
"""A session's id, and that of something in it."""

SESSIONS = bindparam("sessions", type_=ARRAY(String))

_PAIRS = (
    func.unnest(SESSIONS, bindparam("ids", type_=ARRAY(String)))
    .table_valued(column("session", String), column("id", String))
    .render_derived(name="pairs")
)


def lookup(
    session: ColumnElement[str],
    name: ColumnElement[str],
    *columns: ColumnElement[Any],
    where: ColumnElement[bool] | None = None,
) -> Select[Any]:
    """A statement that looks up each of `Pair`s by a unique key: the pair, then `columns` of it.

    Row by row, which the limit sees to. A plan that joins whole tables can win while they are
    empty, and once prepared it stays as they grow.
    """
    one = select(*(columns or (literal_column("1"),))).where(
        session == _PAIRS.c.session, name == _PAIRS.c.id, *(() if where is None else (where,))
    )
    each = one.limit(literal_column("1")).lateral("one")
    rows = select(_PAIRS, each) if columns else select(_PAIRS)
    return rows.select_from(_PAIRS.join(each, true()))


def parameters(pairs: Collection[Pair]) -> dict[str, Any]:
    """What a statement made by `lookup` is executed with."""
    return {"sessions": [pair[0] for pair in pairs], "ids": [pair[1] for pair in pairs]}
