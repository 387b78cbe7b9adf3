"""The session's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from services.session.store.tables import metadata
from storage.schema import Schema

SCHEMA: Final = Schema("session", metadata, Path(__file__).parent / "migrations")
