"""Sessions of self-hosted environments, and the work that their workers poll for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    false,
    text,
)

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    """Adds a column and two tables."""
    op.add_column(
        "sessions", Column("self_hosted", Boolean, nullable=False, server_default=false())
    )
    op.create_table(
        "work_items",
        Column("id", String, primary_key=True),
        Column("session_id", String, ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
        Column("workspace_id", String, nullable=False),
        Column("environment_id", String, nullable=False),
        Column("state", SmallInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("queued_at", BigInteger, nullable=False),
        Column("handed_out", Integer, nullable=False),
        Column("handed_at", BigInteger),
        Column("acknowledged_at", BigInteger),
        Column("started_at", BigInteger),
        Column("heartbeat_at", BigInteger),
        Column("stop_requested_at", BigInteger),
        Column("stopped_at", BigInteger),
        Column("lease_expires_at", BigInteger),
        Column("ttl_seconds", Integer, nullable=False),
        Column("token_digest", LargeBinary),
        Column("worker_id", String, nullable=False),
        Column("metadata", String, nullable=False),
        Column("setbacks", Integer, nullable=False),
        Column("seen_seq", BigInteger, nullable=False),
        Column("free_at", BigInteger, nullable=False),
    )
    op.create_index("work_items_by_age", "work_items", ["environment_id", "created_at", "id"])
    op.create_index("work_items_by_token", "work_items", ["token_digest"], unique=True)
    op.create_index("work_items_by_session", "work_items", ["session_id"])
    op.create_index(
        "work_items_that_live",
        "work_items",
        ["session_id"],
        unique=True,
        sqlite_where=text("state < 5"),
        postgresql_where=text("state < 5"),
    )
    op.create_index(
        "work_items_that_wait",
        "work_items",
        ["environment_id", "queued_at"],
        sqlite_where=text("state = 1"),
        postgresql_where=text("state = 1"),
    )
    op.create_index(
        "work_items_with_a_lease",
        "work_items",
        ["lease_expires_at"],
        sqlite_where=text("lease_expires_at IS NOT NULL"),
        postgresql_where=text("lease_expires_at IS NOT NULL"),
    )
    op.create_table(
        "work_pollers",
        Column("environment_id", String, primary_key=True),
        Column("worker_id", String, primary_key=True),
        Column("seen_at", BigInteger, nullable=False),
    )
