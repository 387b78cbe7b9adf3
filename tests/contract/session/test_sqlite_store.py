"""What SQLite adds to a store's promises: a file that outlives the process."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from services.session.domain.session import SessionRef
from services.session.store import sessions
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from storage import open_database
from tests.doubles.session_world import WORKSPACE, ManualClock, World


async def opened(path):
    database = await open_database(f"sqlite:///{path / 'session.db'}", SCHEMA)
    return database, SqlSessionStore(database, ManualClock())


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path):
    one = World().state
    database, store = await opened(tmp_path)
    world = World()
    [thread] = world.store.run(lambda tx: tx.threads(one.id), keep=False)
    large = world.store.run(lambda tx: tx.details(one.id), keep=False)
    await store.write(lambda tx: tx.create(one, large, thread))
    await database.close()
    database, store = await opened(tmp_path)
    assert await store.read(lambda tx: tx.state(SessionRef(WORKSPACE, one.id))) == one
    await database.close()


async def test_the_search_for_sessions_in_need_does_not_read_the_others(tmp_path):
    database, _ = await opened(tmp_path)
    search = sessions._NEEDS.params(before=1, most=1)
    sql = search.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})

    def explain(connection):
        return connection.execute(text(f"EXPLAIN QUERY PLAN {sql}")).all()

    assert "sessions_that_need_a_brain" in str(await database.read(explain))
    await database.close()
