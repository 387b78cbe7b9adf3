"""Objects in a store, and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, LargeBinary, String, text

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    """Adds tables."""
    op.create_table(
        "objects",
        Column("name", String, primary_key=True),
        Column("uses", Integer, nullable=False),
        Column("delete_at", BigInteger),
        Column("doomed", Boolean, nullable=False),
    )
    op.create_index("objects_by_deletion", "objects", ["delete_at"])
    op.create_table(
        "files",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("session_id", String, nullable=False),
        Column("filename", String, nullable=False),
        Column("copy_of", String, nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("counted", Boolean, nullable=False),
        Column("expires_at", BigInteger),
        Column("object", String, ForeignKey("objects.name")),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("files_newest", "files", ["workspace_id", "created_at", "id"])
    op.create_index(
        "files_of_sessions", "files", ["workspace_id", "session_id", "created_at", "id"]
    )
    for name, column, bytes_are in (
        ("files_by_expiry", "expires_at", "NOT NULL"),
        ("files_expired", "expires_at", "NULL"),
        ("files_by_object", "object", "NOT NULL"),
    ):
        where = text(f"object IS {bytes_are}")
        op.create_index(name, "files", [column], sqlite_where=where, postgresql_where=where)
    made = text("session_id != '' AND copy_of = ''")
    op.create_index(
        "files_made",
        "files",
        ["workspace_id", "session_id", "filename"],
        unique=True,
        sqlite_where=made,
        postgresql_where=made,
    )
    op.create_table(
        "file_usage",
        Column("workspace_id", String, primary_key=True),
        Column("used", BigInteger, nullable=False),
    )
    op.create_table(
        "file_sessions_ended",
        Column("workspace_id", String, primary_key=True),
        Column("session_hash", LargeBinary, primary_key=True),
        Column("ended_at", BigInteger, nullable=False),
    )
    op.create_index("file_sessions_by_end", "file_sessions_ended", ["ended_at"])
