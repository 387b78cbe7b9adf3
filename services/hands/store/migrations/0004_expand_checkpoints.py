"""Checkpoints of workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, LargeBinary, SmallInteger, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "checkpoints",
        Column("checkpoint_id", String(64), primary_key=True),
        Column("session_id", String(128), nullable=False),
        Column("hand", String(64), nullable=False),
        Column("state", SmallInteger, nullable=False),
        Column("name", String(512), nullable=False),
        Column("volume", String(64), nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
    )
    op.create_index("ix_checkpoints_session_id", "checkpoints", ["session_id", "hand"])
    op.create_index("ix_checkpoints_state", "checkpoints", ["state"])
