"""Slices of a log by type and thread, and where a session was forked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Adds two indexes and two columns."""
    op.create_index("events_by_type", "events", ["session_id", "type", "seq"])
    op.create_index(
        "events_of_child_threads",
        "events",
        ["session_id", "thread_id", "seq"],
        sqlite_where=text("thread_id <> ''"),
        postgresql_where=text("thread_id <> ''"),
    )
    op.add_column("session_details", Column("forked_from", String))
    op.add_column("session_details", Column("forked_seq", BigInteger))
