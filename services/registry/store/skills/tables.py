"""Tables of skills."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, String, Table

from services.registry.store.tables import METADATA

# `latest` is the id of the newest version, and the row is the fence of them all. It is no foreign
# key: each would have to be there before the other.
SKILLS = Table(
    "skills",
    METADATA,
    Column("id", String, primary_key=True),
    Column("workspace_id", String, nullable=False),
    Column("name", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("latest", String, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Index("skills_newest", "workspace_id", "created_at", "id"),
)

SKILL_VERSIONS = Table(
    "skill_versions",
    METADATA,
    Column("id", String, primary_key=True),
    Column("skill_id", ForeignKey("skills.id"), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("object", ForeignKey("objects.name"), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Index("skill_versions_newest", "skill_id", "created_at", "id"),
    Index("skill_versions_by_object", "object"),
)
