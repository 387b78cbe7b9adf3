"""What a turn reads depends on the turn, not on the log behind it: rows are counted, not time."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from drover.session.v1 import lease_pb2
from services.session.domain import holding
from services.session.domain.accept import accept
from services.session.domain.append import Holder, append
from tests.contract.session.test_slice_cost import LONG, SHORT, fill
from tests.doubles.session_events import idle, message, running, said
from tests.doubles.session_rows import REF
from tests.doubles.session_world import counting_ids

ENGINES = ["sqlite", pytest.param("new", id="postgres")]
pytestmark = pytest.mark.parametrize("store", ENGINES, indirect=True)

_FETCHED = text(
    "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))"
    " FROM pg_stat_xact_user_tables"
)


class Work:
    """What the transactions of a store have read: steps of SQLite, rows of PostgreSQL."""

    def __init__(self, store):
        self._store = store
        self.done = 0

    def _step(self):
        self.done += 1

    async def write(self, fn):
        """Runs a transaction, and counts what it takes to its last statement."""

        def counted(tx):
            connection = tx._unit.connection
            if connection.dialect.name == "postgresql":
                before = connection.execute(_FETCHED).scalar()
                result = fn(tx)
                self.done += int(tx._settled().execute(_FETCHED).scalar() - before)
                return result
            driver = connection.connection.driver_connection
            driver.set_progress_handler(self._step, 1)
            try:
                result = fn(tx)
                tx._settled()
                return result
            finally:
                driver.set_progress_handler(None, 1)

        return await self._store.write(counted)


async def turn(store, head):
    """What a turn behind so many events reads, from the message to idle, by its transactions."""
    ids, found = counting_ids(), {}

    async def took(name, fn):
        work = Work(store)
        result = await work.write(fn)
        found[name] = work.done
        return result

    await took("a message is accepted", lambda tx: accept(tx, REF, [message()], ids))
    opening = lease_pb2.OpenLease(session_id=REF.session_id, holder="brain", after_seq=head)
    first = lease_pb2.AppendEvents(events=[running()], take=lease_pb2.TAKE_INPUT_NEXT)
    opened = await took(
        "the lease is taken, and the message with it",
        lambda tx: holding.open_lease(tx, REF, opening, [first], ids),
    )
    assert len(opened.appends.acknowledged[0].taken) == 1
    holder = Holder(REF, opened.snapshot.state.generation, opened.appends.sent_seq)
    answer = lease_pb2.AppendEvents(events=[said("well", "sevt_answer")])
    await took("an answer is appended", lambda tx: append(tx, holder, [answer], ids))
    last = lease_pb2.AppendEvents(events=[idle()], release=True)
    result = await took("the lease is given back", lambda tx: append(tx, holder, [last], ids))
    assert result.acknowledged[0].released
    return found


async def test_a_turn_reads_the_same_behind_a_short_log_and_behind_a_long_one(store):
    await fill(store, SHORT)
    short = await turn(store, SHORT)
    await store._database.write(lambda c: c.exec_driver_sql("DELETE FROM sessions"))
    await fill(store, LONG)
    long = await turn(store, LONG)
    # A tree is higher by a level or two.
    dear = {name for name in short if long[name] > 1.2 * short[name] + 20}
    assert {name: (short[name], long[name]) for name in dear} == {}
