"""Fences that outlive their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, LargeBinary

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "ended",
        Column("session_hash", LargeBinary, primary_key=True),
        Column("generation", BigInteger, nullable=False),
        Column("ended_at", BigInteger, nullable=False),
    )
    op.create_index("ix_ended_ended_at", "ended", ["ended_at"])
