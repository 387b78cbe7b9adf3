"""Files of sessions that must be deleted, and the memory stores that sessions are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0009"
down_revision = "0008"


def upgrade(op: Operations) -> None:
    """Adds two tables."""
    op.create_table(
        "file_releases",
        Column("id", Integer, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("session_id", String, nullable=False),
        Column("file_id", String, nullable=False),
        Column("foreseen", Boolean, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
    )
    op.create_index("file_releases_by_time", "file_releases", ["due_at"])
    op.create_index(
        "file_releases_foreseen",
        "file_releases",
        ["session_id"],
        sqlite_where=text("foreseen = 1"),
        postgresql_where=text("foreseen"),
    )
    session = ForeignKey("sessions.id", ondelete="CASCADE")
    op.create_table(
        "session_memory_stores",
        Column("session_id", String, session, primary_key=True, nullable=False),
        Column("memory_store_id", String, primary_key=True, nullable=False),
    )
    op.create_index(
        "sessions_by_memory_store", "session_memory_stores", ["memory_store_id", "session_id"]
    )
