"""Tables of the vault proxy's database.

What is told of vaults and credentials is kept as serialized protobuf; secrets are only ever sealed
(`domain.sealed`). Times are Unix microseconds.
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
    text,
)

from storage.answers import ANSWERS

METADATA = MetaData()

ANSWERS.to_metadata(METADATA)

VAULTS = Table(
    "vaults",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Column("definition", LargeBinary, nullable=False),
    Index("vaults_newest", "workspace_id", "created_at", "id"),
)

# The three columns of the sealed secret are empty together: once it is purged.
CREDENTIALS = Table(
    "credentials",
    METADATA,
    Column("id", String, primary_key=True),
    Column("vault_id", ForeignKey("vaults.id", ondelete="CASCADE"), nullable=False),
    Column("workspace_id", String, nullable=False),
    # What no two active ones of a vault share.
    Column("key", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Column("revision", Integer, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("wrapped_with", String),
    Column("wrapped_key", LargeBinary),
    Column("ciphertext", LargeBinary),
    Index("credentials_newest", "vault_id", "created_at", "id"),
    Index("credentials_by_wrapping", "wrapped_with"),
)

Index(
    "credentials_keys",
    CREDENTIALS.c.vault_id,
    CREDENTIALS.c.key,
    unique=True,
    sqlite_where=CREDENTIALS.c.archived_at.is_(None),
    postgresql_where=CREDENTIALS.c.archived_at.is_(None),
)

# Counts the changes of a workspace's vaults: how a replica hears of another's.
CHANGES = Table(
    "changes",
    METADATA,
    Column("workspace_id", String, primary_key=True),
    Column("revision", BigInteger, nullable=False),
)

SESSION_SECRETS = Table(
    "session_secrets",
    METADATA,
    Column("session_id", String, primary_key=True),
    Column("resource_id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    # When to ask whether the session is there.
    Column("ask_at", BigInteger, nullable=False),
    Column("wrapped_with", String, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    Index("session_secrets_to_ask_about", "ask_at"),
    Index("session_secrets_by_wrapping", "wrapped_with"),
)

# One row: the key that keys of the installation are derived from.
INSTALLATION = Table(
    "installation",
    METADATA,
    Column("id", String, primary_key=True),
    Column("wrapped_with", String, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
)

# Certificate authorities; `asked_at` is when the session was last found to be there.
SESSION_AUTHORITIES = Table(
    "session_authorities",
    METADATA,
    Column("session_id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("certificate", LargeBinary, nullable=False),
    Column("sealed_key", LargeBinary, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Index("session_authorities_to_ask_about", "asked_at"),
)

# Grants that a session was given until then are ended.
REVOCATIONS = Table(
    "revocations",
    METADATA,
    Column("session_id", String, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Index("revocations_by_age", "until"),
)

# Ids sort by time. Empty texts stand for what does not apply.
AUDIT = Table(
    "audit",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("verdict", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("hand_id", String, nullable=False),
    Column("vault_id", String, nullable=False),
    Column("credential_id", String, nullable=False),
    Column("method", String, nullable=False),
    Column("host", String, nullable=False),
    Column("port", Integer, nullable=False),
    Column("path", String, nullable=False),
    Column("reason", String, nullable=False),
    Index("audit_newest", "workspace_id", "id"),
    Index("audit_by_session", "session_id", "id"),
    Index("audit_by_age", "at"),
)

# Most entries are about no credential.
for _column in ("vault_id", "credential_id"):
    Index(
        f"audit_by_{_column.removesuffix('_id')}",
        AUDIT.c[_column],
        AUDIT.c.id,
        sqlite_where=text(f"{_column} <> ''"),
        postgresql_where=text(f"{_column} <> ''"),
    )
