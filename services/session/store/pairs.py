"""Rows of several sessions named in one statement, for PostgreSQL, where each costs a round trip.

Lists travel as arrays: the statement stays the same however many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import String, bindparam, column, func
from sqlalchemy.dialects.postgresql import ARRAY

if TYPE_CHECKING:
    from collections.abc import Collection

Pair = tuple[str, str]
"""A session's id, and that of something in it."""

SESSIONS = bindparam("sessions", type_=ARRAY(String))

PAIRS = (
    func.unnest(SESSIONS, bindparam("ids", type_=ARRAY(String)))
    .table_valued(column("session", String), column("id", String))
    .render_derived(name="pairs")
)
"""The pairs that were given, as a table to join with."""


def columns(pairs: Collection[Pair]) -> dict[str, Any]:
    """What a statement with `PAIRS` is executed with."""
    return {"sessions": [pair[0] for pair in pairs], "ids": [pair[1] for pair in pairs]}
