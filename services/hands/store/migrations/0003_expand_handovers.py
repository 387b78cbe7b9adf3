"""What was handed on, and which workspace each session belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Adds a table and a column."""
    op.create_table(
        "handovers",
        Column("session_id", String(128), primary_key=True),
        Column("hand", String(64), primary_key=True),
        Column("to_session_id", String(128), nullable=False),
        Column("to_hand", String(64), nullable=False),
        Column("settled", Boolean, nullable=False),
        Column("begun_at", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_handovers_settled", "handovers", ["settled"])
    op.add_column("fences", Column("workspace_id", String(128)))
