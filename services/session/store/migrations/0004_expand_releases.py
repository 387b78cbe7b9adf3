"""Hands that are released are told the session's last lease, to take nothing of it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    """Adds a column."""
    op.add_column(
        "hand_releases",
        Column("generation", BigInteger, nullable=False, server_default=text("0")),
    )
