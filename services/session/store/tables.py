"""The tables of the session service.

Times are microseconds since 1970 by the database's clock. Events are kept as serialized protobuf,
with beside them the few columns that are searched by, so that fields which this release does not
know survive.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    false,
    text,
)

from storage.answers import ANSWERS

metadata = MetaData()

ANSWERS.to_metadata(metadata)

# Narrow, since every append rewrites its row.
sessions = Table(
    "sessions",
    metadata,
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
    Column("self_hosted", Boolean, nullable=False, server_default=false()),
)
Index("sessions_by_age", sessions.c.workspace_id, sessions.c.created_at, sessions.c.id)
Index(
    "sessions_that_need_a_brain",
    sessions.c.updated_at,
    sqlite_where=text("needs_brain = 1"),
    postgresql_where=text("needs_brain"),
)


def _session_id(*, primary_key: bool = False) -> Column[str]:
    reference = ForeignKey("sessions.id", ondelete="CASCADE")
    return Column("session_id", String, reference, primary_key=primary_key, nullable=False)


details = Table(
    "session_details",
    metadata,
    _session_id(primary_key=True),
    Column("environment_id", String, nullable=False),
    Column("title", String),
    Column("metadata", String, nullable=False),
    Column("agent", LargeBinary, nullable=False),
    Column("environment", LargeBinary, nullable=False),
    # Of a fork: the session that it was made from, and how much of the log is that one's.
    Column("forked_from", String),
    Column("forked_seq", BigInteger),
    Column("budget_cents", BigInteger),
    # A serialized `Session` with nothing but its resources; never a token.
    Column("resources", LargeBinary),
    # JSON.
    Column("vault_ids", String),
)

threads = Table(
    "threads",
    metadata,
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
)
Index("threads_by_session", threads.c.session_id)

events = Table(
    "events",
    metadata,
    _session_id(primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("event_id", String, nullable=False),
    Column("type", String, nullable=False),
    Column("thread_id", String, nullable=False),
    Column("processed_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("session_id", "event_id"),
)
Index("events_by_type", events.c.session_id, events.c.type, events.c.seq)
# The primary thread's events, by far the most, are found in the log itself.
Index(
    "events_of_child_threads",
    events.c.session_id,
    events.c.thread_id,
    events.c.seq,
    sqlite_where=text("thread_id <> ''"),
    postgresql_where=text("thread_id <> ''"),
)

inbox = Table(
    "inbox",
    metadata,
    _session_id(primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("event_id", String, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("type", String, nullable=False),
    Column("taken_seq", BigInteger),
    # Empty once taken: the log has it.
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("session_id", "event_id"),
)
Index(
    "inbox_waiting",
    inbox.c.session_id,
    inbox.c.position,
    sqlite_where=text("taken_seq IS NULL"),
    postgresql_where=text("taken_seq IS NULL"),
)

calls = Table(
    "calls",
    metadata,
    _session_id(primary_key=True),
    Column("call_id", String, primary_key=True),
    Column("kind", SmallInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("result_id", String, nullable=False),
)

# What a brain has folded a session's log into, up to `seq`. Of use to the next one of its format.
checkpoints = Table(
    "checkpoints",
    metadata,
    _session_id(primary_key=True),
    Column("harness", String, nullable=False),
    Column("version", String, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

releases = Table(
    "hand_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("purge", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    # Of the session's last lease.
    Column("generation", BigInteger, nullable=False, server_default=text("0")),
    # The vault proxy keeps secrets of the session, which must go too.
    Column("secrets", Boolean, nullable=False, server_default=false()),
)

# Files of sessions to be deleted, all where none is named. What was foreseen may be withdrawn.
file_releases = Table(
    "file_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("file_id", String, nullable=False),
    Column("foreseen", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
)
Index("file_releases_by_time", file_releases.c.due_at)
Index(
    "file_releases_foreseen",
    file_releases.c.session_id,
    sqlite_where=text("foreseen = 1"),
    postgresql_where=text("foreseen"),
)

# To list the sessions that have a store by.
memory_stores = Table(
    "session_memory_stores",
    metadata,
    _session_id(primary_key=True),
    Column("memory_store_id", String, primary_key=True, nullable=False),
)
Index("sessions_by_memory_store", memory_stores.c.memory_store_id, memory_stores.c.session_id)

# What workers of self-hosted environments poll for. One that has not stopped is its session's only.
work_items = Table(
    "work_items",
    metadata,
    Column("id", String, primary_key=True),
    _session_id(),
    Column("workspace_id", String, nullable=False),
    Column("environment_id", String, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("queued_at", BigInteger, nullable=False),
    # Of those that wait: how often it was handed out without an acknowledgement, and when last.
    Column("handed_out", Integer, nullable=False),
    Column("handed_at", BigInteger),
    Column("acknowledged_at", BigInteger),
    Column("started_at", BigInteger),
    Column("heartbeat_at", BigInteger),
    Column("stop_requested_at", BigInteger),
    Column("stopped_at", BigInteger),
    Column("lease_expires_at", BigInteger),
    Column("ttl_seconds", Integer, nullable=False),
    # SHA-256 of the token of the last poll.
    Column("token_digest", LargeBinary),
    Column("worker_id", String, nullable=False),
    Column("metadata", String, nullable=False),
    # How often in a row a worker gave it back with nothing done, the log's end then, and until when
    # it rests therefore.
    Column("setbacks", Integer, nullable=False),
    Column("seen_seq", BigInteger, nullable=False),
    Column("free_at", BigInteger, nullable=False),
)
Index("work_items_by_age", work_items.c.environment_id, work_items.c.created_at, work_items.c.id)
Index("work_items_by_token", work_items.c.token_digest, unique=True)
Index(
    "work_items_that_live",
    work_items.c.session_id,
    unique=True,
    sqlite_where=text("state < 5"),
    postgresql_where=text("state < 5"),
)
Index("work_items_by_session", work_items.c.session_id)
Index(
    "work_items_that_wait",
    work_items.c.environment_id,
    work_items.c.queued_at,
    sqlite_where=text("state = 1"),
    postgresql_where=text("state = 1"),
)
Index(
    "work_items_with_a_lease",
    work_items.c.lease_expires_at,
    sqlite_where=text("lease_expires_at IS NOT NULL"),
    postgresql_where=text("lease_expires_at IS NOT NULL"),
)

# Who has polled for work, by the names that workers give themselves.
work_pollers = Table(
    "work_pollers",
    metadata,
    Column("environment_id", String, primary_key=True),
    Column("worker_id", String, primary_key=True),
    Column("seen_at", BigInteger, nullable=False),
)
