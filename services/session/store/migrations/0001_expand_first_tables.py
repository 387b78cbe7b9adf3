"""The tables of the first release. A file of that release has them already."""

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
    UniqueConstraint,
    text,
)

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes what is not there."""
    _make_sessions(op)
    op.create_table(
        "session_details",
        _session_id(primary_key=True),
        Column("environment_id", String, nullable=False),
        Column("title", String),
        Column("metadata", String, nullable=False),
        Column("agent", LargeBinary, nullable=False),
        Column("environment", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "threads",
        Column("id", String, primary_key=True),
        _session_id(),
        Column("parent_thread_id", String),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("status", SmallInteger, nullable=False),
        Column("running_since", BigInteger),
        Column("active_micros", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        if_not_exists=True,
    )
    op.create_index("threads_by_session", "threads", ["session_id"], if_not_exists=True)
    _make_events(op)
    op.create_table(
        "calls",
        _session_id(primary_key=True),
        Column("call_id", String, primary_key=True),
        Column("kind", SmallInteger, nullable=False),
        Column("state", SmallInteger, nullable=False),
        Column("result_id", String, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "hand_releases",
        Column("id", Integer, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("session_id", String, nullable=False),
        Column("purge", Boolean, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        if_not_exists=True,
    )


def _make_sessions(op: Operations) -> None:
    op.create_table(
        "sessions",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("agent_id", String, nullable=False),
        Column("agent_version", Integer, nullable=False),
        Column("primary_thread_id", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("status", SmallInteger, nullable=False),
        Column("running_since", BigInteger),
        Column("active_micros", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("stop", SmallInteger, nullable=False),
        Column("head_seq", BigInteger, nullable=False),
        Column("head_at", BigInteger, nullable=False),
        Column("inbox_tail", BigInteger, nullable=False),
        Column("waiting_interrupts", Integer, nullable=False),
        Column("waiting_confirmations", Integer, nullable=False),
        Column("waiting_messages", Integer, nullable=False),
        Column("unanswered", Integer, nullable=False),
        Column("needs_brain", Boolean, nullable=False),
        Column("generation", BigInteger, nullable=False),
        Column("holder", String, nullable=False),
        Column("lease_expires_at", BigInteger),
        Column("usage", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "sessions_by_age", "sessions", ["workspace_id", "created_at", "id"], if_not_exists=True
    )
    op.create_index(
        "sessions_that_need_a_brain",
        "sessions",
        ["updated_at"],
        sqlite_where=text("needs_brain = 1"),
        postgresql_where=text("needs_brain"),
        if_not_exists=True,
    )


def _make_events(op: Operations) -> None:
    op.create_table(
        "events",
        _session_id(primary_key=True),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("event_id", String, nullable=False),
        Column("type", String, nullable=False),
        Column("thread_id", String, nullable=False),
        Column("processed_at", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("session_id", "event_id"),
        if_not_exists=True,
    )
    op.create_table(
        "inbox",
        _session_id(primary_key=True),
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        Column("event_id", String, nullable=False),
        Column("kind", SmallInteger, nullable=False),
        Column("type", String, nullable=False),
        Column("taken_seq", BigInteger),
        Column("body", LargeBinary, nullable=False),
        UniqueConstraint("session_id", "event_id"),
        if_not_exists=True,
    )
    op.create_index(
        "inbox_waiting",
        "inbox",
        ["session_id", "position"],
        sqlite_where=text("taken_seq IS NULL"),
        postgresql_where=text("taken_seq IS NULL"),
        if_not_exists=True,
    )


def _session_id(*, primary_key: bool = False) -> Column[str]:
    reference = ForeignKey("sessions.id", ondelete="CASCADE")
    return Column("session_id", String, reference, primary_key=primary_key, nullable=False)
