"""What processes that share a PostgreSQL database tell each other: hints, any of which may be lost.

NOTIFY takes a lock that all transactions with one share, so it never is part of a transaction that
matters: what is to be said is collected, and said in a statement of its own as soon as the last one
is done (LIBRARIES, "The physical floor": inside, it costs more than half of the writes).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

import asyncpg
import structlog

from storage.address import Address, is_sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PAYLOAD: Final = 7_999
"""Bytes that one notice may have (PostgreSQL manual, NOTIFY)."""

_PACE: Final = 0.002
"""Seconds between statements: under load they carry more, and cost the database less."""
_PROBE_EVERY: Final = 5.0
_PATIENCE: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_SETTINGS: Final = {"synchronous_commit": "off", "jit": "off"}
_SAY: Final = "SELECT pg_notify($1, notice) FROM unnest($2::text[]) AS notice"
_PROBE: Final = "SELECT 1"

_log = structlog.get_logger("storage.notices")


class Party(Protocol):
    """Who speaks and listens. Its methods must not wait."""

    def compose(self) -> Sequence[str]:
        """What is to be said now, each at most `MAX_PAYLOAD` bytes. Said once, or lost."""
        ...

    def heard(self, notice: str) -> None:
        """Someone has said this; it may have been this party itself."""
        ...

    def joined(self) -> None:
        """From now on what is said is heard. Something may have been said before."""
        ...


class Notices(Protocol):
    """A channel of notices."""

    def ring(self) -> None:
        """There is something to say: the party is asked for it as soon as it can be said."""
        ...

    async def run(self, party: Party) -> None:
        """Speaks and listens for `party` until cancelled."""
        ...


def open_notices(url: str, channel: str) -> Notices | None:
    """The notices of the database at `url`; `None` where no other process can share it.

    Raises `CannotStartError` for a URL that names no database.
    """
    return None if is_sqlite(url) else PostgresNotices(Address.parse(url), channel)


class PostgresNotices:
    """LISTEN and NOTIFY over one connection of its own, which is made again when it breaks."""

    def __init__(
        self, address: Address, channel: str, *, probe_seconds: float = _PROBE_EVERY
    ) -> None:
        self._address = address
        self._channel = channel
        self._probe_seconds = probe_seconds
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is something to say."""
        self._rung.set()

    async def run(self, party: Party) -> None:
        """Speaks and listens until cancelled, over one connection after the other."""
        pause = _FIRST_PAUSE
        while True:
            connection = None
            try:
                connection = await self._join(party)
                pause = _FIRST_PAUSE
                await self._speak(connection, party)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                # The class alone: a driver's words may hold what the address holds.
                _log.info("notices_interrupted", cause=type(error).__name__)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _join(self, party: Party) -> asyncpg.Connection[Any]:
        connection = await asyncpg.connect(
            self._address.dsn,
            timeout=_PATIENCE,
            command_timeout=_PATIENCE,
            server_settings={**_SETTINGS, "application_name": f"{self._channel} notices"},
        )
        try:
            connection.add_termination_listener(lambda _connection: self._rung.set())
            await connection.add_listener(self._channel, lambda *said: party.heard(said[3]))
        except BaseException:
            connection.terminate()
            raise
        party.joined()
        return connection

    async def _speak(self, connection: asyncpg.Connection[Any], party: Party) -> None:
        # Nothing is prepared beforehand: the driver ends that without a Sync, and until the next
        # one the server keeps what others say to itself.
        while True:
            try:
                async with asyncio.timeout(self._probe_seconds):
                    await self._rung.wait()
            except TimeoutError:
                await connection.execute(_PROBE)  # a dead connection would listen for ever
                continue
            self._rung.clear()
            if connection.is_closed():
                return
            if notices := party.compose():
                await connection.fetch(_SAY, self._channel, list(notices))
                await asyncio.sleep(_PACE)
