"""Health that follows the database: a service that has lost it says so until it is back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from sqlalchemy import select, true

from chassis.errors import DroverError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from storage import Database

_EVERY_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 2.0
_ANSWER: Final = select(true())

_log = structlog.get_logger("storage.health")


class Reporter(Protocol):
    """Who answers health checks."""

    async def report(self, *, serving: bool) -> None:
        """Answers them so from now on."""
        ...


async def follow(
    database: Database, reporter: Reporter, *, every_seconds: float = _EVERY_SECONDS
) -> None:
    """Asks the database again and again, and reports whenever that has changed. Never returns."""
    serving = True
    while True:
        answered = await _answers(database)
        if answered != serving:
            serving = answered
            _log.warning("database_is_back" if serving else "database_does_not_answer")
            await reporter.report(serving=serving)
        await asyncio.sleep(every_seconds)


async def _answers(database: Database) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await database.read(_ask)
    except (DroverError, TimeoutError):
        return False
    return True


def _ask(connection: Connection) -> None:
    connection.execute(_ANSWER)
