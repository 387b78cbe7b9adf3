"""The vault proxy's database as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from services.vault_proxy.store.tables import METADATA
from storage.schema import Schema

SCHEMA: Final = Schema("vault_proxy", METADATA, Path(__file__).parent / "migrations")
