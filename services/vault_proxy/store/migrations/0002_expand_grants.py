"""Certificate authorities of sessions, and which of their grants were ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    """Adds both tables."""
    op.create_table(
        "session_authorities",
        Column("session_id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("certificate", LargeBinary, nullable=False),
        Column("sealed_key", LargeBinary, nullable=False),
        Column("made_at", BigInteger, nullable=False),
        Column("asked_at", BigInteger, nullable=False),
    )
    op.create_index("session_authorities_to_ask_about", "session_authorities", ["asked_at"])
    op.create_table(
        "revocations",
        Column("session_id", String, primary_key=True),
        Column("until", BigInteger, nullable=False),
    )
    op.create_index("revocations_by_age", "revocations", ["until"])
