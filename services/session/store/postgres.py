"""PostgreSQL: sessions are locked, and what was announced is fetched for all at once.

Sessions are locked without waiting, or two replicas whose groups have sessions in common would
wait for one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.session.store import calls, events, inbox, requests, sessions
from services.session.store.engine import HeldElsewhereError
from services.session.store.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import About
    from services.session.store.pairs import Pair
    from services.session.store.sessions import SessionRow

# Of what waits in an inbox, so much is fetched ahead: a brain takes one message at a time.
_WINDOW: Final = 4


class PostgresEngine:
    """See `engine.Engine`. The time is the database's."""

    parallel = 3

    def reading(self, connection: Connection) -> Unit:
        """A unit of one transaction that reads."""
        return Unit(connection, _fetch, sessions.time)

    def writing(
        self, connection: Connection, abouts: Sequence[About], *, wait: bool, hopeful: bool
    ) -> tuple[Unit, Collection[str]]:
        """A unit of transactions, with the locks that they need and what they are about."""
        unit = Unit(
            connection,
            _locked if wait else _locked_if_free,
            sessions.time,
            reserve=requests.wait_for if wait else requests.take_if_free,
            shared=True,
            hopeful=hopeful,
        )
        return unit, _prepare(unit, abouts, wait=wait)


def _fetch(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row, and the time with it."""
    row, time = sessions.get_at(unit.connection, session_id)
    unit.time = unit.time or time
    return row


def _locked(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row, once nobody else holds it."""
    rows, time = sessions.lock(unit.connection, [session_id], wait=True)
    unit.time = unit.time or time
    return rows.get(session_id)


def _locked_if_free(unit: Unit, session_id: str) -> SessionRow | None:
    """A session's row. Raises `HeldElsewhereError` when another holds it."""
    rows, time = sessions.lock(unit.connection, [session_id], wait=False)
    unit.time = unit.time or time
    if not rows and sessions.existing(unit.connection, [session_id]):
        raise HeldElsewhereError(session_id)
    return rows.get(session_id)


def _prepare(unit: Unit, abouts: Sequence[About], *, wait: bool) -> Collection[str]:
    """Locks and fetches what was announced; answers the lanes of what others hold."""
    elsewhere = requests.reserve(unit, abouts, wait=wait)
    wanted = {about.ref.session_id for about in abouts if about.ref is not None}
    if wanted:
        elsewhere |= _prepare_sessions(unit, abouts, wanted, wait=wait)
    ours = (one for one in abouts if elsewhere.isdisjoint(requests.lanes(one)))
    requests.fetch(unit, [about.key for about in ours if about.key])
    return elsewhere


def _prepare_sessions(
    unit: Unit, abouts: Sequence[About], wanted: set[str], *, wait: bool
) -> set[str]:
    """As `_prepare`, of the sessions and what is in them."""
    connection, known = unit.connection, unit.known
    rows, unit.time = sessions.lock(connection, wanted, wait=wait)
    missing = wanted - rows.keys()
    held = sessions.existing(connection, missing) if missing and not wait else set[str]()
    known.sessions.update(rows)
    known.sessions.update(dict.fromkeys(missing - held))
    ours = [about for about in abouts if about.ref is not None and about.ref.session_id in rows]
    busy = {one for one, row in rows.items() if sessions.is_waited_for(row)}
    found = _pairs(ours, lambda about: about.found)
    logged = _pairs(ours, lambda about: about.logged)
    # Behind the locks, so that nothing of it changes before the commit.
    if pairs := found if unit.hopeful else logged | found:
        known.events.update(_present(pairs, events.id_pairs(connection, pairs)))
    # Where something waits, a brain must not give its id to another event.
    if pairs := found | {pair for pair in logged if pair[0] in busy}:
        known.queued_ids.update(_present(pairs, inbox.id_pairs(connection, pairs)))
    if pairs := _pairs(ours, lambda about: about.calls):
        known.calls.update(dict.fromkeys(pairs) | calls.get_pairs(connection, pairs))
    takers = {about.ref.session_id for about in ours if about.waiting and about.ref is not None}
    _look_at_inboxes(unit, takers & busy)
    return held


def _look_at_inboxes(unit: Unit, session_ids: Collection[str]) -> None:
    if session_ids:
        for session_id, oldest in inbox.first(unit.connection, session_ids, _WINDOW).items():
            unit.known.windows[session_id] = oldest, len(oldest) < _WINDOW


def _pairs(abouts: Sequence[About], ids: Callable[[About], Collection[str]]) -> set[Pair]:
    return {
        (about.ref.session_id, one)
        for about in abouts
        if about.ref is not None
        for one in ids(about)
    }


def _present(pairs: Collection[Pair], found: Collection[Pair]) -> dict[Pair, bool]:
    return {pair: pair in found for pair in pairs}
