"""Skills, and their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, String

if TYPE_CHECKING:
    from alembic.operations import Operations

revision = "0005"
down_revision = "0004"


def upgrade(op: Operations) -> None:
    """Adds tables."""
    op.create_table(
        "skills",
        Column("id", String, primary_key=True),
        Column("workspace_id", String, nullable=False),
        Column("name", String, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("latest", String, nullable=False),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("skills_newest", "skills", ["workspace_id", "created_at", "id"])
    op.create_table(
        "skill_versions",
        Column("id", String, primary_key=True),
        Column("skill_id", String, ForeignKey("skills.id"), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("object", String, ForeignKey("objects.name"), nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("definition", LargeBinary, nullable=False),
    )
    op.create_index("skill_versions_newest", "skill_versions", ["skill_id", "created_at", "id"])
    op.create_index("skill_versions_by_object", "skill_versions", ["object"])
