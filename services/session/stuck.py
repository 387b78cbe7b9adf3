"""Telling of sessions that need a brain, or have one, and do not get on.

Only tells: whom to wake and when is the dispatcher's. Every replica looks by itself and finds the
same, since it is the database that is asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError
from services.session.domain.log import timestamp
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.session.domain.ports import SessionStore, Stalled, Transaction

_LOOKS: Final = 10
"""How often it is looked within the time that makes a session stuck."""
_LIMIT: Final = 1000

_log = structlog.get_logger("session.stuck")


class Tally(Protocol):
    """Where the counts go."""

    def stuck(self, sessions: int, found: int) -> None:
        """So many sessions are stuck now, of which so many were not told of before."""
        ...


@dataclass(slots=True)
class _Episode:
    """A session's log as long as it does not grow. `since` is in the database's microseconds."""

    head_seq: int
    since: int
    told: bool = False


class StuckSessions:
    """Logs every session once that got no event for `seconds` although it should have.

    A session that waits for a person needs no brain, and is not looked at.
    """

    def __init__(self, store: SessionStore, tally: Tally, seconds: float) -> None:
        self._store = store
        self._tally = tally
        self._seconds = seconds
        self._episodes: dict[str, _Episode] = {}

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            try:
                await self.look()
            except DroverError as error:
                _log.warning("look_failed", reason=error.reason, message=error.message)
            await asyncio.sleep(self._seconds / _LOOKS)

    async def look(self) -> None:
        """Tells of sessions that are stuck now, and of those that no longer are."""
        quiet = int(self._seconds * MICROS)

        def read(tx: Transaction) -> tuple[int, Sequence[Stalled]]:
            return tx.now(), tx.stalled(tx.now() - quiet, _LIMIT)

        now, stalled = await self._store.read(read)
        before, self._episodes = self._episodes, {}
        found = 0
        for one in stalled:
            episode = before.pop(one.ref.session_id, None)
            if episode is None or episode.head_seq != one.head_seq:
                if episode is not None and episode.told:
                    _recovered(one.ref.session_id)
                # One that does not run yet came to need a brain since its last event, so by now.
                episode = _Episode(one.head_seq, now if one.since is None else one.since)
            self._episodes[one.ref.session_id] = episode
            if not episode.told and now - episode.since >= quiet:
                episode.told = True
                found += 1
                _tell(one, episode.since, now)
        for session_id, episode in before.items():
            if episode.told:
                _recovered(session_id)
        self._tally.stuck(sum(episode.told for episode in self._episodes.values()), found)


def _tell(one: Stalled, since: int, now: int) -> None:
    _log.warning(
        "session_stuck",
        session_id=one.ref.session_id,
        since=timestamp(since).ToJsonString(),
        seconds=(now - since) // MICROS,
        waits_for=one.waits_for,
        last_event=one.last_type,
        generation=one.generation,
        holder=one.holder if one.held else "",
    )


def _recovered(session_id: str) -> None:
    _log.info("session_no_longer_stuck", session_id=session_id)
