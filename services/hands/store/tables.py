"""Tables of the hands."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

metadata = MetaData()

# The newest lease generation that each session's hands have seen, and the workspace that its
# brains work for: null where none has come since that is kept.
fences = Table(
    "fences",
    metadata,
    Column("session_id", String(128), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("workspace_id", String(128)),
)

# Fences of sessions that are gone, under a hash of their name.
ended = Table(
    "ended",
    metadata,
    Column("session_hash", LargeBinary, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False, index=True),  # microseconds since the epoch
)

# One row per tool call. `result` is a serialized ExecuteResponse, null until the call has ended.
executions = Table(
    "executions",
    metadata,
    Column("session_id", String(128), primary_key=True),
    Column("call_id", String(128), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("tool", Text, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("started_at", BigInteger, nullable=False),  # microseconds since the epoch
    Column("ended_at", BigInteger),
    Column("result", LargeBinary),
    sqlite_with_rowid=False,
)

# Hands that are another session's now, under the address that they had.
handovers = Table(
    "handovers",
    metadata,
    Column("session_id", String(128), primary_key=True),
    Column("hand", String(64), primary_key=True),
    Column("to_session_id", String(128), nullable=False),
    Column("to_hand", String(64), nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("begun_at", BigInteger, nullable=False),  # microseconds since the epoch
    Index("ix_handovers_settled", "settled"),
    sqlite_with_rowid=False,
)

# Copies of workspaces in the store: being uploaded, the one that counts, and those to be deleted.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("checkpoint_id", String(64), primary_key=True),
    Column("session_id", String(128), nullable=False),
    Column("hand", String(64), nullable=False),
    Column("state", SmallInteger, nullable=False, index=True),
    Column("name", String(512), nullable=False),
    Column("volume", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),  # microseconds since the epoch
    Index("ix_checkpoints_session_id", "session_id", "hand"),
)
