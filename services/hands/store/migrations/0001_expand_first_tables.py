"""The tables of the first release. A file of that release has them already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes what is not there."""
    op.create_table(
        "fences",
        Column("session_id", String(128), primary_key=True),
        Column("generation", BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "executions",
        Column("session_id", String(128), primary_key=True),
        Column("call_id", String(128), primary_key=True),
        Column("generation", BigInteger, nullable=False),
        Column("tool", Text, nullable=False),
        Column("starts", Integer, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("result", LargeBinary),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
