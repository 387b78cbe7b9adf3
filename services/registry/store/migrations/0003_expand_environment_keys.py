"""Keys of self-hosted environments, by their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Adds a table."""
    op.create_table(
        "environment_keys",
        Column("id", String, primary_key=True),
        Column(
            "environment_id",
            String,
            ForeignKey("environments.id", ondelete="CASCADE"),
            nullable=False,
        ),
        Column("digest", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("revoked_at", BigInteger),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("environment_keys_by_digest", "environment_keys", ["digest"], unique=True)
    op.create_index(
        "environment_keys_newest", "environment_keys", ["environment_id", "created_at", "id"]
    )
