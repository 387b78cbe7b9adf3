"""The registry's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from services.registry.store.tables import METADATA
from storage.schema import Schema

SCHEMA: Final = Schema("registry", METADATA, Path(__file__).parent / "migrations")
