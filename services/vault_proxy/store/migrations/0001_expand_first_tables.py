"""Vaults, credentials, secrets of sessions, the installation's key, and the audit trail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes the first tables."""
    _answers(op)
    op.create_table(
        "vaults",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("vaults_newest", "vaults", ["workspace_id", "created_at", "id"])
    _credentials(op)
    op.create_table(
        "changes",
        Column("workspace_id", String, primary_key=True),
        Column("revision", BigInteger, nullable=False),
    )
    op.create_table(
        "session_secrets",
        Column("session_id", String, primary_key=True),
        Column("resource_id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("ask_at", BigInteger, nullable=False),
        Column("wrapped_with", String, nullable=False),
        Column("wrapped_key", LargeBinary, nullable=False),
        Column("ciphertext", LargeBinary, nullable=False),
    )
    op.create_index("session_secrets_to_ask_about", "session_secrets", ["ask_at"])
    op.create_index("session_secrets_by_wrapping", "session_secrets", ["wrapped_with"])
    op.create_table(
        "installation",
        Column("id", String, primary_key=True),
        Column("wrapped_with", String, nullable=False),
        Column("wrapped_key", LargeBinary, nullable=False),
    )
    _audit(op)


def _answers(op: Operations) -> None:
    op.create_table(
        "answers",
        Column("id", LargeBinary, primary_key=True),
        Column("fingerprint", LargeBinary, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("answered_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("about", String, nullable=False),
        Column("answer", LargeBinary),
    )
    op.create_index("answers_by_expiry", "answers", ["expires_at"])
    op.create_index("answers_by_what_they_tell_about", "answers", ["about"])


def _credentials(op: Operations) -> None:
    op.create_table(
        "credentials",
        Column("id", String, primary_key=True),
        Column("vault_id", String, ForeignKey("vaults.id", ondelete="CASCADE"), nullable=False),
        Column("workspace_id", String, nullable=False),
        Column("key", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("archived_at", BigInteger),
        Column("revision", Integer, nullable=False),
        Column("definition", LargeBinary, nullable=False),
        Column("wrapped_with", String),
        Column("wrapped_key", LargeBinary),
        Column("ciphertext", LargeBinary),
    )
    op.create_index("credentials_newest", "credentials", ["vault_id", "created_at", "id"])
    op.create_index("credentials_by_wrapping", "credentials", ["wrapped_with"])
    op.create_index(
        "credentials_keys",
        "credentials",
        ["vault_id", "key"],
        unique=True,
        sqlite_where=text("archived_at IS NULL"),
        postgresql_where=text("archived_at IS NULL"),
    )


def _audit(op: Operations) -> None:
    op.create_table(
        "audit",
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
    )
    op.create_index("audit_newest", "audit", ["workspace_id", "id"])
    op.create_index("audit_by_session", "audit", ["session_id", "id"])
    op.create_index("audit_by_age", "audit", ["at"])
    for column in ("vault_id", "credential_id"):
        op.create_index(
            f"audit_by_{column.removesuffix('_id')}",
            "audit",
            [column, "id"],
            sqlite_where=text(f"{column} <> ''"),
            postgresql_where=text(f"{column} <> ''"),
        )
