"""Alembic revisions of the registry's tables, applied in the order of their numbers."""
