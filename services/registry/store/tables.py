"""Tables of the registry's database.

Definitions are kept as serialized protobuf: the contract, not the columns, says what one holds.
Columns are only what is searched, ordered or fenced by. Times are Unix microseconds.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

from storage.answers import ANSWERS

METADATA = MetaData()

ANSWERS.to_metadata(METADATA)

AGENTS = Table(
    "agents",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Index("agents_newest", "workspace_id", "created_at", "id"),
)

# `archived_at` is not part of a version: it is the agent's, and versions never change.
AGENT_VERSIONS = Table(
    "agent_versions",
    METADATA,
    Column("agent_id", ForeignKey("agents.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("definition", LargeBinary, nullable=False),
)

ENVIRONMENTS = Table(
    "environments",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("name", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Column("definition", LargeBinary, nullable=False),
    Index("environments_newest", "workspace_id", "created_at", "id"),
)

Index(
    "environments_names",
    ENVIRONMENTS.c.workspace_id,
    ENVIRONMENTS.c.name,
    unique=True,
    sqlite_where=ENVIRONMENTS.c.archived_at.is_(None),
    postgresql_where=ENVIRONMENTS.c.archived_at.is_(None),
)

# Of a key itself only the digest is kept. A release that knows no keys deletes environments, too:
# their keys go by the cascade.
ENVIRONMENT_KEYS = Table(
    "environment_keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("environment_id", ForeignKey("environments.id", ondelete="CASCADE"), nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("definition", LargeBinary, nullable=False),
    Index("environment_keys_by_digest", "digest", unique=True),
    Index("environment_keys_newest", "environment_id", "created_at", "id"),
)

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("definition", LargeBinary, nullable=False),
    Index("api_keys_by_digest", "digest", unique=True),
    Index("api_keys_newest", "created_at", "id"),
    Index("api_keys_newest_of_workspace", "workspace_id", "created_at", "id"),
)
