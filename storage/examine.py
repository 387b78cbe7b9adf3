"""A look at a database that changes nothing: what `drover doctor` tells of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from storage.address import Address
from storage.connections import Connections
from storage.migrations import current, require_server
from storage.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from storage.schema import Schema

_PATIENCE: Final = 4.0  # s


@dataclass(frozen=True, slots=True)
class Examined:
    """A PostgreSQL server that can be used, and the schemas in it that lack a revision."""

    version: str
    behind: tuple[str, ...]


async def examine(url: str, schemas: Sequence[Schema]) -> Examined:
    """Asks the server once. Raises `CannotStartError` when it cannot be used."""
    address = Address.parse(url)
    connections = Connections(address, "pg_catalog", {}, size=1)
    try:
        async with asyncio.timeout(_PATIENCE):
            pooled = await connections.take()
            try:
                return await pooled.run(partial(_look, schemas=schemas))
            finally:
                await connections.give_up(pooled)
    except Exception as cause:
        raise refusal(cause, address.shown) from cause
    finally:
        await connections.close()


def _look(connection: Connection, schemas: Sequence[Schema]) -> Examined:
    require_server(connection)
    version = connection.dialect.server_version_info or ()
    behind = [one.service for one in schemas if current(connection, one.name) < one.head]
    return Examined(".".join(map(str, version)), tuple(behind))
