"""The table of the objects that the registry has put into its store, or is putting there."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table

from services.registry.store.tables import METADATA

# A row is there before its object, and goes after it. `uses` counts the rows that refer to it;
# without any it is deleted from `delete_at` on, Unix microseconds: it is still being stored until
# then, or was let go of. One that is `doomed` is being deleted, and nothing refers to it again.
OBJECTS = Table(
    "objects",
    METADATA,
    Column("name", String, primary_key=True),
    Column("uses", Integer, nullable=False),
    Column("delete_at", BigInteger),
    Column("doomed", Boolean, nullable=False),
    Index("objects_by_deletion", "delete_at"),
)
