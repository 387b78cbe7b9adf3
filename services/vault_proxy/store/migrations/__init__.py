"""Alembic revisions of the vault proxy's tables, applied in the order of their numbers."""
