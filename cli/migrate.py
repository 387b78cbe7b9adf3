"""`drover migrate`: brings the services' databases to what this release needs."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from cli.databases import ServiceDatabase, migrate_all
from cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def migrate_services(services: Iterable[str], data: Path) -> None:
    """Migrates the databases of `services`, a line for each step. Raises `CannotStartError`."""
    out = Terminal()
    applied: Counter[str] = Counter()

    def tell(database: ServiceDatabase, revision: int) -> None:
        applied[database.service] += 1
        out.say(f"{database.service:<12} {database.shown}  revision {revision:04} applied")

    for service in services:
        database = ServiceDatabase.of(service, os.environ, data)
        if not database.exists:
            out.say(f"{service:<12} {database.shown}  not there: its service makes it")
            continue
        migrate_all([database], tell)
        if not applied[service]:
            head = database.schema().head
            out.say(f"{service:<12} {database.shown}  has what this release needs, {head:04}")
