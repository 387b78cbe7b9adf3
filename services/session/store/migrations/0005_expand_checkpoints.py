"""Checkpoints of folded logs, so that a brain that comes anew need not fold a long one whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0005"
down_revision = "0004"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "checkpoints",
        Column(
            "session_id",
            String,
            ForeignKey("sessions.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("harness", String, nullable=False),
        Column("version", String, nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
    )
    if op.get_context().dialect.name == "postgresql":
        # To compress it would take the database far longer than to write it, and be waited for.
        op.execute("ALTER TABLE checkpoints ALTER COLUMN body SET STORAGE EXTERNAL")
