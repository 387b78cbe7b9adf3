"""Alembic revisions of the session's tables, applied in the order of their numbers."""
