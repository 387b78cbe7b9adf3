"""What PostgreSQL adds to the port: a server that restarts, stalls, refuses, and others in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time

import asyncpg
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from chassis.errors import DroverError, Reason
from storage.failures import explain
from storage.postgres import PostgresDatabase, _commit
from storage.prepared import Prepared
from tests.doubles.databases import with_tables
from tests.doubles.postgres import running_cluster

metadata = MetaData()
item = Table(
    "item",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("body", Text, nullable=False),
)


@pytest.fixture(scope="module")
def server():
    """A durable server of this module's own, to be broken."""
    with running_cluster(deadlock_timeout="50ms") as cluster:
        yield cluster


@pytest.fixture
def url(server):
    return server.new_database()


@pytest.fixture
async def database(url, tmp_path):
    async with with_tables(url, metadata, tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _long_patience(monkeypatch):
    """A machine that is busy may take longer for anything than production should."""
    monkeypatch.setattr("storage.postgres.PATIENCE", 60.0)


@contextlib.contextmanager
def short_patience():
    """For what is waited for in vain, and nothing else."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("storage.postgres.PATIENCE", 1.5)
        patched.setattr("storage.postgres._PROMPT", 0.5)
        yield


def add(body):
    return lambda connection: connection.execute(insert(item).values(body=body)).rowcount


def bodies(connection):
    return sorted(connection.scalars(select(item.c.body)))


def sessions_of(server, url):
    """Connections of services to a database, as the server sees them."""
    return int(
        server.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'drover_test' AND datname = current_database()",
            database=url.rpartition("/")[2],
        )
    )


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_server_that_restarts_between_transactions_is_not_noticed(database, server, mode):
    await asyncio.gather(*[database.write(add("a")) for _ in range(10)])
    await asyncio.to_thread(server.restart, mode)
    assert len(await database.read(bodies)) == 10
    assert await database.write(add("b")) == 1


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_transaction_that_a_restart_interrupts_is_run_again(database, server, mode):
    runs = []
    inside = asyncio.Event()

    def slow(connection):
        runs.append(1)
        add(f"run {len(runs)}")(connection)
        if len(runs) == 1:
            inside.set()
            connection.execute(text("SELECT pg_sleep(20)"))
        return len(runs)

    writing = asyncio.create_task(database.write(slow))
    await asyncio.wait_for(inside.wait(), 30)
    await asyncio.to_thread(server.restart, mode)
    assert await writing == 2
    assert await database.read(bodies) == ["run 2"]


async def test_statement_errors_are_not_run_again(database):
    runs = []

    def wrong(connection):
        runs.append(1)
        connection.execute(text("SELECT nonsense FROM nowhere"))

    with pytest.raises(DBAPIError):
        await database.write(wrong)
    assert runs == [1]


async def test_paused_server_is_told_within_the_patience_and_leaves_nothing_behind(
    database, server, url
):
    await asyncio.gather(*[database.write(add("before")) for _ in range(8)])
    tasks = len(asyncio.all_tasks())
    server.pause()
    try:
        began = time.monotonic()
        for _ in range(2):
            with short_patience():
                calls = [database.write(add("lost")) for _ in range(30)]
                calls += [database.read(bodies) for _ in range(30)]
                errors = await asyncio.gather(*calls, return_exceptions=True)
            for error in errors:
                assert isinstance(error, DroverError)
                assert error.reason is Reason.UNAVAILABLE
                assert error.retry_after
        assert time.monotonic() - began < 2 * 1.5 + 20
        await _until(lambda: len(asyncio.all_tasks()) <= tasks)
    finally:
        server.resume()
    assert await database.write(add("after")) == 1
    assert "after" in await database.read(bodies)
    results = await asyncio.gather(*[database.write(add("after")) for _ in range(50)])
    assert results == [1] * 50
    # The server may yet have to notice that those of before were let go of.
    await _until(lambda: sessions_of(server, url) <= 8)
    await _until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_failure_that_comes_when_its_caller_has_gone_is_no_complaint(database, server):
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    server.pause()
    try:
        with short_patience(), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await database.read(bodies)
        await _until(lambda: not database._running)
    finally:
        server.resume()
    gc.collect()
    assert complaints == []


async def test_stalled_connections_are_given_up_for_new_ones_at_once(
    database, server, url, monkeypatch
):
    tried = []
    doubt = database._connections.doubt
    monkeypatch.setattr("storage.postgres._PROMPT", 0.5)
    monkeypatch.setattr(database._connections, "doubt", lambda: (tried.append(1), doubt()))
    await asyncio.gather(*[database.read(bodies) for _ in range(8)])
    backends = server.execute(
        "SELECT pid FROM pg_stat_activity "
        "WHERE application_name = 'drover_test' AND datname = current_database()",
        database=url.rpartition("/")[2],
    ).split()
    server.stall(map(int, backends))  # the connections lead nowhere, the server is well
    try:
        assert await database.write(add("a")) == 1
    finally:
        server.resume()
    assert len(tried) < len(backends)  # and not one after the other


async def test_connections_are_bounded_and_closed_at_the_end(server, url, tmp_path):
    async with with_tables(url, metadata, tmp_path) as database:
        await asyncio.gather(*[database.write(add("a")) for _ in range(200)])
        assert 1 <= sessions_of(server, url) <= 8
    await _until(lambda: sessions_of(server, url) == 0)


async def test_close_does_not_wait_for_a_server_that_is_stalled(server, url, tmp_path):
    async with with_tables(url, metadata, tmp_path):
        other = PostgresDatabase.open(url, "drover_test")
        await asyncio.gather(*[other.read(bodies) for _ in range(4)])
        server.pause()
        try:
            began = time.monotonic()
            await other.close()
            assert time.monotonic() - began < 20
        finally:
            server.resume()


async def test_deadlock_ends_with_both_transactions_done(database):
    for body in ("left", "right"):
        await database.write(add(body))
    both = asyncio.Barrier(2)
    runs = []

    def swap(first, second):
        def write(connection):
            runs.append(first)
            connection.execute(update(item).where(item.c.id == first).values(body=f"{first}"))
            if len(runs) <= 2:
                await_only(both.wait())
            connection.execute(update(item).where(item.c.id == second).values(body=f"{first}"))

        return write

    await asyncio.gather(database.write(swap(1, 2)), database.write(swap(2, 1)))
    assert len(runs) == 3
    assert len(set(await database.read(bodies))) == 1


async def test_write_that_waits_too_long_for_a_lock_gives_way_to_its_deadline(database, url):
    await database.write(add("a"))
    other = await asyncpg.connect(url, server_settings={"search_path": "drover_test"})
    async with other.transaction():
        await other.execute("SELECT * FROM item FOR UPDATE")
        with short_patience(), pytest.raises(DroverError) as told:
            await database.write(
                lambda connection: connection.execute(update(item).values(body="b"))
            )
    await other.close()
    assert told.value.reason is Reason.UNAVAILABLE
    assert await database.read(bodies) == ["a"]


async def test_peer_that_stops_inside_a_transaction_does_not_keep_its_locks(database, url, server):
    await database.write(add("a"))
    peer = PostgresDatabase.open(url, "drover_test")
    stuck = asyncio.Event()
    holding = asyncio.Event()

    def hold(connection):
        connection.execute(update(item).values(body="peer"))
        if not holding.is_set():
            holding.set()
            await_only(stuck.wait())

    held = asyncio.create_task(peer.write(hold))
    await holding.wait()
    await database.write(lambda connection: connection.execute(update(item).values(body="b")))
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    await _until(lambda: server.execute(idle, database="postgres") == "0")
    stuck.set()
    await held  # its transaction was lost, and run again
    await peer.close()
    assert await database.read(bodies) == ["peer"]


async def test_table_that_is_migrated_under_its_readers_and_writers_is_not_noticed(
    database, server, url
):
    await database.write(add("a"))
    wider = "ALTER TABLE drover_test.item ALTER COLUMN body TYPE varchar(99), ADD COLUMN more text"
    prepared = Prepared(select(item.c.body).order_by(item.c.id))
    assert await database.read(lambda connection: prepared.execute(connection, {})) == [("a",)]
    server.execute(wider, database=url.rpartition("/")[2])
    assert await database.read(lambda connection: prepared.execute(connection, {})) == [("a",)]
    assert await database.read(bodies) == ["a"]
    assert await database.write(add("b")) == 1


async def test_failed_statement_that_is_overlooked_is_not_taken_for_a_commit(database):
    def overlook(connection):
        add("a")(connection)
        with contextlib.suppress(DBAPIError):
            connection.execute(text("SELECT 1 / 0"))

    with pytest.raises(RuntimeError, match="its transaction went on"):
        await database.write(overlook)
    assert await database.read(bodies) == []
    assert await database.write(add("b")) == 1


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("disk_full", Reason.RESOURCE_EXHAUSTED),
        ("configuration_limit_exceeded", Reason.RESOURCE_EXHAUSTED),
        ("read_only_sql_transaction", Reason.UNAVAILABLE),
        ("invalid_password", Reason.UNAVAILABLE),
        ("too_many_connections", Reason.UNAVAILABLE),
    ],
)
async def test_servers_errors_are_told_as_what_the_caller_can_do(condition, reason, database):
    def fail(connection):
        add("a")(connection)
        connection.execute(text(f"DO $$ BEGIN RAISE {condition}; END $$"))

    in_vain = short_patience() if reason is Reason.UNAVAILABLE else contextlib.nullcontext()
    with in_vain, pytest.raises(DroverError) as told:
        await database.write(fail)
    assert told.value.reason is reason
    assert told.value.retry_after
    assert await database.read(bodies) == []


async def test_commit_that_the_driver_refused_to_send_did_not_happen():
    class Driver:
        """Reads what the server said before it ended the connection."""

        def is_closed(self):
            return False

        async def execute(self, _statement):
            raise asyncpg.InternalClientError

    with pytest.raises(ConnectionResetError) as refused:
        await _commit(Driver())
    assert explain(refused.value).again


async def test_unknown_outcome_of_a_commit_is_told_and_not_run_again(database, url, server):
    runs = []
    name = url.rpartition("/")[2]
    # The commit itself waits, in a deferred trigger, and loses its connection there.
    server.execute(
        "CREATE FUNCTION wait_long() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(20); RETURN NULL; END'; "
        "CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON drover_test.item "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_long()",
        database=name,
    )

    def write(connection):
        runs.append(1)
        add("a")(connection)

    writing = asyncio.create_task(database.write(write))
    committing = "FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"
    await _until(lambda: server.execute(f"SELECT count(*) {committing}", database=name) == "1")
    server.execute(f"SELECT pg_terminate_backend(pid) {committing}", database=name)
    with pytest.raises(DroverError) as told:
        await writing
    assert told.value.reason is Reason.UNAVAILABLE
    assert runs == [1]


async def test_too_many_waiting_transactions_are_refused_at_once(database, monkeypatch):
    monkeypatch.setattr("storage.postgres._MAX_WAITING", 10)
    results = await asyncio.gather(
        *[database.write(add("a")) for _ in range(30)], return_exceptions=True
    )
    refused = [one for one in results if isinstance(one, DroverError)]
    assert {one.reason for one in refused} == {Reason.RESOURCE_EXHAUSTED}
    assert len(refused) == 20
    assert await database.write(add("a")) == 1


async def _until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
