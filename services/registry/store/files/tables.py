"""Tables of files."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, LargeBinary, String, Table

from services.registry.store.tables import METADATA

# `object` is empty once the bytes are gone: the file has expired. `session_id` and `copy_of` are
# empty for uploads; a session's copy has both, what it made only the first. `size` counts for the
# quota where `counted`.
FILES = Table(
    "files",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("session_id", String, nullable=False),
    Column("filename", String, nullable=False),
    Column("copy_of", String, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("counted", Boolean, nullable=False),
    Column("expires_at", BigInteger),
    Column("object", ForeignKey("objects.name")),
    Column("definition", LargeBinary, nullable=False),
    Index("files_newest", "workspace_id", "created_at", "id"),
    Index("files_of_sessions", "workspace_id", "session_id", "created_at", "id"),
)

# What the sweep looks for: bytes whose time is over, and, for a month, what is known of them.
_THERE, _GONE = FILES.c.object.is_not(None), FILES.c.object.is_(None)
Index("files_by_expiry", FILES.c.expires_at, sqlite_where=_THERE, postgresql_where=_THERE)
Index("files_expired", FILES.c.expires_at, sqlite_where=_GONE, postgresql_where=_GONE)
Index("files_by_object", FILES.c.object, sqlite_where=_THERE, postgresql_where=_THERE)

# The fence of what a session makes: one file of a name.
Index(
    "files_made",
    FILES.c.workspace_id,
    FILES.c.session_id,
    FILES.c.filename,
    unique=True,
    sqlite_where=(FILES.c.session_id != "") & (FILES.c.copy_of == ""),
    postgresql_where=(FILES.c.session_id != "") & (FILES.c.copy_of == ""),
)

# The fence of a workspace's quota: what its files count for, in bytes.
FILE_USAGE = Table(
    "file_usage",
    METADATA,
    Column("workspace_id", String, primary_key=True),
    Column("used", BigInteger, nullable=False),
)

# Sessions whose files were deleted: what comes for them after that is too late. They are kept as
# hashes, so that nothing names a session that was deleted.
ENDED_SESSIONS = Table(
    "file_sessions_ended",
    METADATA,
    Column("workspace_id", String, primary_key=True),
    Column("session_hash", LargeBinary, primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
    Index("file_sessions_by_end", "ended_at"),
)
