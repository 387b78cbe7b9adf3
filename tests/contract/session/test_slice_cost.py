"""What a slice costs depends on the slice: the work of a database is counted, not timed."""

from __future__ import annotations

import pytest
from sqlalchemy import LargeBinary, bindparam, text, update
from sqlalchemy.util import await_only

from services.session.domain import bounds
from services.session.domain.bounds import Around
from services.session.domain.listing import EventsQuery, list_events
from services.session.domain.ports import TimeRange
from services.session.domain.session import MICROS, ThreadState
from services.session.store import threads
from services.session.store.tables import events
from storage.prepared import Prepared
from tests.doubles.session_events import said
from tests.doubles.session_rows import REF, create, stamped, state

SHORT, LONG = 100, 100_000
ENGINES = ["sqlite", pytest.param("new", id="postgres")]
pytestmark = pytest.mark.parametrize("store", ENGINES, indirect=True)

TYPES = ("user.message", "agent.message", "agent.tool_use", "agent.tool_result")
RARE = "session.error"

FILL = """
INSERT INTO events (session_id, seq, event_id, type, thread_id, processed_at, body)
SELECT 'sesn_1', n, 'e' || n,
  CASE WHEN n % 5000 = 50 THEN 'session.error' WHEN n % 4 = 0 THEN 'user.message'
    WHEN n % 4 = 1 THEN 'agent.message' WHEN n % 4 = 2 THEN 'agent.tool_use'
    ELSE 'agent.tool_result' END,
  CASE WHEN n % 10 = 0 THEN 'sthr_child' ELSE '' END,
  CAST(n AS BIGINT) * 1000000, :body
FROM {numbers}
"""
NUMBERS = {
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :count)"
    " SELECT n FROM s)",
    "postgresql": "generate_series(1, :count) AS n",
}


async def fill(store, count):
    """A log of so many events, in which types and threads take turns."""
    one = state(head_seq=count, head_at=count * MICROS)
    await create(store, one)
    child = ThreadState("sthr_child", one.id, 1, 1, one.primary_thread_id)
    middle = stamped(count // 2, said("x" * 300, f"e{count // 2}")).event

    def write(connection):
        insert = text(FILL.format(numbers=NUMBERS[connection.dialect.name]))
        body = said("x" * 300, "e").SerializeToString()
        connection.execute(
            insert.bindparams(bindparam("body", type_=LargeBinary)), {"count": count, "body": body}
        )
        whole = {"body": middle.SerializeToString()}
        connection.execute(update(events).where(events.c.event_id == middle.id).values(whole))
        threads.add(connection, [threads.stored(child)])

    await store._database.write(write)


def counted(monkeypatch):
    """Has every statement add what it takes to the list: steps of SQLite, blocks of PostgreSQL."""
    work, execute = [], Prepared.execute

    def counting(self, connection, parameters):
        compiled = self._for(connection)
        driver = connection.connection.driver_connection
        if connection.dialect.is_async:
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {compiled.sql}"
            [row] = await_only(driver.fetch(explain, *compiled.values(parameters)))
            plan = row[0][0]["Plan"]
            work.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
            return execute(self, connection, parameters)
        work.append(0)

        def step():
            work[-1] += 1

        driver.set_progress_handler(step, 1)
        try:
            return execute(self, connection, parameters)
        finally:
            driver.set_progress_handler(None, 1)

    monkeypatch.setattr(Prepared, "execute", counting)
    return work


def queries(count):
    """Slices of every kind of a log of so many events, each of 20 events at most."""
    middle = count // 2
    return {
        "the beginning": EventsQuery(20),
        "the end": EventsQuery(20, descending=True),
        "from the middle": EventsQuery(20, after_seq=middle),
        "before the middle": EventsQuery(20, before_seq=middle, descending=True),
        "one type": EventsQuery(20, types=TYPES[:1]),
        "one type, from the end": EventsQuery(20, types=TYPES[:1], descending=True),
        "three types": EventsQuery(20, types=TYPES[:3], after_seq=middle),
        "a rare type": EventsQuery(1, types=(RARE,), max_bytes=1),
        "a rare type among others": EventsQuery(20, types=(RARE, *TYPES[:2]), descending=True),
        "a type that is not there": EventsQuery(20, types=("user.interrupt",)),
        "a child's": EventsQuery(20, thread_id="sthr_child"),
        "a child's, from the end": EventsQuery(20, thread_id="sthr_child", descending=True),
        "the primary thread's": EventsQuery(20, thread_id="sthr_sesn_1", after_seq=middle),
        "a type of the primary thread": EventsQuery(20, types=TYPES[:1], thread_id="sthr_sesn_1"),
        "a time": EventsQuery(20, times=TimeRange(middle * MICROS, (middle + 5) * MICROS)),
        "around an event": EventsQuery(20, around=Around(f"e{middle}", 5, 5)),
        "around an event, of a type": EventsQuery(
            20, types=TYPES[:2], around=Around(f"e{middle}", 5, 5)
        ),
    }


async def costs(store, work, count):
    found = {}
    for name, query in queries(count).items():
        work.clear()
        page = await store.read(lambda tx, q=query: list_events(tx, REF, q, None))
        found[name] = sum(work)
        assert page.events or name == "a type that is not there"
    return found


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_slice_costs_the_same_in_a_short_log_and_in_a_long_one(
    store, monkeypatch, analyzed
):
    work = counted(monkeypatch)
    await fill(store, SHORT)
    short = await costs(store, work, SHORT)
    await store._database.write(lambda c: c.exec_driver_sql("DELETE FROM sessions"))
    await fill(store, LONG)
    if analyzed:
        await store._database.write(lambda c: c.exec_driver_sql("ANALYZE"))
    long = await costs(store, work, LONG)
    # A tree is higher by a level or two, and a time is sought in twice as many steps.
    dear = {name for name in short if long[name] > 3 * short[name] + 60}
    assert {name: (short[name], long[name]) for name in dear} == {}


async def test_what_no_index_tells_costs_no_more_than_a_stretch(store, monkeypatch):
    work = counted(monkeypatch)
    await fill(store, LONG)
    await store._database.write(
        lambda c: c.exec_driver_sql("UPDATE events SET thread_id = 'sthr_child'")
    )
    query = EventsQuery(20, thread_id="sthr_sesn_1")
    page = await store.read(lambda tx: list_events(tx, REF, query, None))
    assert page.events == []
    assert page.next.at == bounds.SCAN
    assert sum(work) < 20 * bounds.SCAN
