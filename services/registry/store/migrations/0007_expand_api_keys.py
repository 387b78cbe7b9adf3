"""API keys of workspaces, by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "api_keys",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("api_keys_by_digest", "api_keys", ["digest"], unique=True)
    op.create_index("api_keys_newest", "api_keys", ["created_at", "id"])
    op.create_index(
        "api_keys_newest_of_workspace", "api_keys", ["workspace_id", "created_at", "id"]
    )
