"""The hands's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from services.hands.store.tables import metadata
from storage.schema import Schema

SCHEMA: Final = Schema("hands", metadata, Path(__file__).parent / "migrations")
