"""Memory stores, memories and their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0006"
down_revision = "0005"


def upgrade(op: Operations) -> None:
    """Adds tables."""
    _add_stores(op)
    _add_memories(op)
    _add_versions(op)


def _add_stores(op: Operations) -> None:
    op.create_table(
        "memory_stores",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("deleted_at", BigInteger),
        Column("revision", BigInteger, nullable=False),
        Column("changed_at", BigInteger, nullable=False),
        Column("memories", Integer, nullable=False),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("memory_stores_newest", "memory_stores", ["workspace_id", "created_at", "id"])
    op.create_index(
        "memory_stores_deleted",
        "memory_stores",
        ["deleted_at"],
        sqlite_where=text("deleted_at IS NOT NULL"),
        postgresql_where=text("deleted_at IS NOT NULL"),
    )


def _add_memories(op: Operations) -> None:
    op.create_table(
        "memories",
        Column("id", String, primary_key=True),
        Column("store_id", String, ForeignKey("memory_stores.id"), nullable=False),
        Column(
            "path",
            String().with_variant(String(collation="C"), "postgresql"),
            nullable=False,
        ),
        Column("version_id", String, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("content_sha256", String, nullable=False),
        Column("content_size", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
    )
    op.create_index("memories_by_path", "memories", ["store_id", "path"], unique=True)
    op.create_index("memories_by_revision", "memories", ["store_id", "revision"], unique=True)


def _add_versions(op: Operations) -> None:
    op.create_table(
        "memory_versions",
        Column("id", String, primary_key=True),
        Column("store_id", String, ForeignKey("memory_stores.id"), nullable=False),
        Column("memory_id", String, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("operation", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("actor_kind", Integer),
        Column("actor_id", String),
        Column("redacted_at", BigInteger),
        Column("redacted_by", LargeBinary),
        Column("expires_at", BigInteger),
        Column("path", String),
        Column("content_sha256", String),
        Column("content_size", Integer),
        Column("content", LargeBinary),
    )
    op.create_index(
        "memory_versions_newest", "memory_versions", ["store_id", "revision"], unique=True
    )
    op.create_index("memory_versions_by_memory", "memory_versions", ["memory_id", "revision"])
    op.create_index(
        "memory_versions_by_actor", "memory_versions", ["store_id", "actor_id", "revision"]
    )
    op.create_index(
        "memory_versions_by_expiry",
        "memory_versions",
        ["expires_at"],
        sqlite_where=text("expires_at IS NOT NULL"),
        postgresql_where=text("expires_at IS NOT NULL"),
    )
