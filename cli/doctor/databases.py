"""Whether the services can use the databases that the settings name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from cli.databases import SERVICES, ServiceDatabase
from cli.doctor.finding import Finding, fine, missing, optional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SUBJECT = "database"


def databases(data: Path, environ: Mapping[str, str]) -> list[Finding]:
    """A finding for each database, and one for all that are embedded."""
    try:
        found = [ServiceDatabase.of(service, environ, data) for service in SERVICES]
        servers = [database for database in found if not database.is_sqlite]
        by_url: dict[str, list[ServiceDatabase]] = {}
        for database in servers:
            by_url.setdefault(database.url.open(), []).append(database)
        findings = [_server(here) for here in by_url.values()]
    except CannotStartError as error:
        return [missing(_SUBJECT, str(error), "set it right, or unset it for embedded SQLite")]
    if embedded := [database.service for database in found if database.is_sqlite]:
        findings.append(fine(_SUBJECT, f"embedded SQLite: {', '.join(embedded)}"))
    return findings


def _server(databases: Sequence[ServiceDatabase]) -> Finding:
    from storage.examine import examine

    schemas = [database.schema() for database in databases]
    try:
        found = asyncio.run(examine(databases[0].url.open(), schemas))
    except CannotStartError as error:
        return missing(_SUBJECT, str(error), "see docs/operations.md")
    detail = f"PostgreSQL {found.version} at {databases[0].shown}"
    if found.behind:
        return optional(
            _SUBJECT,
            f"{detail}: not migrated for {', '.join(found.behind)}",
            "drover migrate; drover up does it by itself",
        )
    services = ", ".join(database.service for database in databases)
    return fine(_SUBJECT, f"{detail}: {services}")
