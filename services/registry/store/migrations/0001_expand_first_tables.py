"""The tables of the first release. A file of that release has them already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes what is not there."""
    op.create_table(
        "agents",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("version", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        if_not_exists=True,
    )
    op.create_index(
        "agents_newest", "agents", ["workspace_id", "created_at", "id"], if_not_exists=True
    )
    op.create_table(
        "agent_versions",
        Column("agent_id", String, ForeignKey("agents.id"), primary_key=True),
        Column("version", Integer, primary_key=True),
        Column("definition", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "environments",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("name", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("definition", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index(
        "environments_newest",
        "environments",
        ["workspace_id", "created_at", "id"],
        if_not_exists=True,
    )
    op.create_index(
        "environments_names",
        "environments",
        ["workspace_id", "name"],
        unique=True,
        sqlite_where=text("archived_at IS NULL"),
        postgresql_where=text("archived_at IS NULL"),
        if_not_exists=True,
    )
