"""Answers kept under their requests, so that a repetition has no second effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "answers",
        Column("id", LargeBinary, primary_key=True),
        Column("fingerprint", LargeBinary, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("answered_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("about", String, nullable=False),
        Column("answer", LargeBinary),
    )
    op.create_index("answers_by_expiry", "answers", ["expires_at"])
    op.create_index("answers_by_what_they_tell_about", "answers", ["about"])
