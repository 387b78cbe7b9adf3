"""The registry's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from services.registry.store.files import tables as files
from services.registry.store.memory import tables as memory
from services.registry.store.objects import tables as objects
from services.registry.store.skills import tables as skills
from services.registry.store.tables import METADATA
from storage.schema import Schema

TABLES: Final = objects, files, skills, memory
"""Modules of tables that are their own: they are of `METADATA` once they are imported."""

SCHEMA: Final = Schema("registry", METADATA, Path(__file__).parent / "migrations")
