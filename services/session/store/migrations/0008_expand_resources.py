"""What sessions are given: repositories that are mounted, vaults, and secrets to be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, LargeBinary, String, false

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0008"
down_revision = "0007"


def upgrade(op: Operations) -> None:
    """Adds columns."""
    op.add_column("session_details", Column("resources", LargeBinary))
    op.add_column("session_details", Column("vault_ids", String))
    op.add_column(
        "hand_releases", Column("secrets", Boolean, nullable=False, server_default=false())
    )
