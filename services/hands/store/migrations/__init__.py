"""Alembic revisions of the hands's tables, applied in the order of their numbers."""
