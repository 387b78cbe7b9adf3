"""Tables of the hands."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

# The newest lease generation that each session's hands have seen.
fences = Table(
    "fences",
    metadata,
    Column("session_id", String(128), primary_key=True),
    Column("generation", BigInteger, nullable=False),
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
