"""Budgets of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0006"
down_revision = "0005"


def upgrade(op: Operations) -> None:
    """Adds a column."""
    op.add_column("session_details", Column("budget_cents", BigInteger))
