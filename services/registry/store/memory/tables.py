"""Tables of memory, in the registry's database. Times are Unix microseconds.

What a memory says is in its versions alone; its row tells which of them it is at.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
)

from services.registry.store.tables import METADATA

# Ordered by code points everywhere, whatever the language of a database.
PATH: Final = String().with_variant(String(collation="C"), "postgresql")

# `revision` counts the changes of memories, the last of which was at `changed_at`. A store that is
# deleted stays, without anything of its own, until all its versions are gone.
MEMORY_STORES = Table(
    "memory_stores",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Column("deleted_at", BigInteger),
    Column("revision", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("memories", Integer, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Index("memory_stores_newest", "workspace_id", "created_at", "id"),
)

Index(
    "memory_stores_deleted",
    MEMORY_STORES.c.deleted_at,
    sqlite_where=MEMORY_STORES.c.deleted_at.is_not(None),
    postgresql_where=MEMORY_STORES.c.deleted_at.is_not(None),
)

MEMORIES = Table(
    "memories",
    METADATA,
    Column("id", String, primary_key=True),
    Column("store_id", ForeignKey("memory_stores.id"), nullable=False),
    Column("path", PATH, nullable=False),
    Column("version_id", String, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("content_sha256", String, nullable=False),
    Column("content_size", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("memories_by_path", "store_id", "path", unique=True),
    Index("memories_by_revision", "store_id", "revision", unique=True),
)

# `actor_kind` is the number of the field in the contract's `Actor`; `redacted_by` is one,
# serialized. `expires_at` is set once a version is not among the newest of its memory. Content is
# no text to the engine, which may not take all of it, and last, since it is seldom read.
MEMORY_VERSIONS = Table(
    "memory_versions",
    METADATA,
    Column("id", String, primary_key=True),
    Column("store_id", ForeignKey("memory_stores.id"), nullable=False),
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
    Index("memory_versions_newest", "store_id", "revision", unique=True),
    Index("memory_versions_by_memory", "memory_id", "revision"),
    Index("memory_versions_by_actor", "store_id", "actor_id", "revision"),
)

Index(
    "memory_versions_by_expiry",
    MEMORY_VERSIONS.c.expires_at,
    sqlite_where=MEMORY_VERSIONS.c.expires_at.is_not(None),
    postgresql_where=MEMORY_VERSIONS.c.expires_at.is_not(None),
)
