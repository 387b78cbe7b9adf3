from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import threading

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError, OperationalError

from chassis.errors import CannotStartError, DroverError, Reason
from storage import open_database
from tests.doubles.databases import schema_in

metadata = MetaData()
event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("body", Text, nullable=False, unique=True),
)
call = Table("call", metadata, Column("event_id", ForeignKey("event.id"), nullable=False))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "test.db"


@pytest.fixture
async def database(path):
    opened = await open_database(f"sqlite:///{path}", schema_in(path.parent, metadata))
    yield opened
    await opened.close()


def add(body: str):
    def write(connection: Connection) -> int:
        return connection.execute(insert(event).values(body=body)).inserted_primary_key[0]

    return write


def bodies(connection: Connection) -> list[str]:
    return list(connection.scalars(select(event.c.body).order_by(event.c.id)))


class Gate:
    """Holds the writer thread inside a write until opened, so that later writes pile up."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _connection: Connection) -> None:
        self.entered.set()
        assert self.opened.wait(30)

    async def wait_until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)


class Commits:
    """What another connection sees of the file: what is committed."""

    def __init__(self, path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def bodies(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT body FROM event ORDER BY id")]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def commits(database, path):  # noqa: ARG001  # the file must be there
    other = Commits(path)
    yield other
    other.close()


async def test_write_is_committed_when_it_is_acknowledged(database, commits):
    key = await database.write(add("a"))
    assert commits.bodies() == ["a"]
    assert key == 1


async def test_waiting_writes_share_one_commit_and_none_is_acknowledged_before_it(
    database, commits
):
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()
    seen_inside: list[list[str]] = []

    def look(connection: Connection) -> None:
        add("last")(connection)
        seen_inside.append(commits.bodies())

    writes = [asyncio.create_task(database.write(add(str(number)))) for number in range(20)]
    writes.append(asyncio.create_task(database.write(look)))
    await asyncio.sleep(0)
    assert not any(task.done() for task in writes)
    gate.opened.set()
    await asyncio.gather(first, *writes)
    # While the last of them ran, nothing of the group was visible to anyone else.
    assert seen_inside == [[]]
    assert commits.bodies() == [*map(str, range(20)), "last"]


async def test_failing_write_fails_alone(database, commits):
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()

    def half(connection: Connection) -> None:
        add("half")(connection)
        raise KeyError("half")

    results = asyncio.gather(
        database.write(add("a")),
        database.write(half),
        database.write(add("a")),
        database.write(add("b")),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    gate.opened.set()
    await first
    ok_a, half_error, twice, ok_b = await results
    assert isinstance(ok_a, int)
    assert isinstance(ok_b, int)
    assert isinstance(half_error, KeyError)
    assert isinstance(twice, IntegrityError)
    assert commits.bodies() == ["a", "b"]


async def test_writes_are_acknowledged_in_the_order_in_which_they_were_made(database):
    order: list[int] = []

    async def write(number: int) -> None:
        await database.write(add(str(number)))
        order.append(number)

    await asyncio.gather(*(write(number) for number in range(300)))
    assert order == list(range(300))
    assert await database.read(bodies) == [str(number) for number in range(300)]


async def test_cancelled_caller_leaves_the_others_and_the_database_whole(database, commits):
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()
    waiting = [asyncio.create_task(database.write(add(str(number)))) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    first.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert [type(result) for result in results] == [
        asyncio.CancelledError,
        int,
        asyncio.CancelledError,
        int,
    ]
    assert commits.bodies() == ["0", "2"]  # cancelled before it ran: nothing of it is kept
    await database.write(add("after"))
    assert commits.bodies() == ["0", "2", "after"]


async def test_write_whose_transaction_is_lost_fails_with_its_whole_group(database, commits):
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()

    def lose(connection: Connection) -> None:
        connection.connection.driver_connection.rollback()  # as the engine does on a full disk

    results = asyncio.gather(database.write(add("a")), database.write(lose), return_exceptions=True)
    await asyncio.sleep(0)
    gate.opened.set()
    for error in [*(await results), *await asyncio.gather(first, return_exceptions=True)]:
        assert isinstance(error, DroverError)
        assert error.reason is Reason.UNAVAILABLE
    assert commits.bodies() == []
    await database.write(add("after"))
    assert commits.bodies() == ["after"]


async def test_error_that_a_future_cannot_carry_still_reaches_its_caller(database):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await database.write(lambda _: next(iter(())))


async def test_read_sees_what_was_acknowledged_and_one_snapshot_throughout(database):
    await database.write(add("a"))
    inside, go = threading.Event(), threading.Event()

    def twice(connection: Connection) -> tuple[list[str], list[str]]:
        before = bodies(connection)
        inside.set()
        assert go.wait(30)
        return before, bodies(connection)

    reading = asyncio.create_task(database.read(twice))
    assert await asyncio.to_thread(inside.wait, 30)
    await database.write(add("b"))
    go.set()
    assert await reading == (["a"], ["a"])
    assert await database.read(bodies) == ["a", "b"]


async def test_read_that_finds_no_connection_is_told_to_come_again(database, path):
    moved = path.parent.rename(path.parent.with_name("moved"))
    try:
        with pytest.raises(DroverError) as refusal:
            await database.read(bodies)  # the first: a reader has yet to be opened for it
    finally:
        moved.rename(path.parent)
    assert refusal.value.reason is Reason.UNAVAILABLE
    assert await database.read(bodies) == []


async def test_writes_go_on_where_no_connection_is_to_be_had_any_more(database, path):
    moved = path.parent.rename(path.parent.with_name("moved"))
    try:
        assert await database.write(add("a")) == 1  # the first: its connection is there already
    finally:
        moved.rename(path.parent)


async def test_file_that_cannot_be_opened_for_writes_is_refused_at_the_start(path, monkeypatch):
    schema = schema_in(path.parent, metadata)
    await (await open_database(f"sqlite:///{path}", schema)).close()
    connect = Engine.connect
    connected = itertools.count()

    def once(engine: Engine) -> Connection:
        if next(connected):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(engine)

    monkeypatch.setattr(Engine, "connect", once)
    with pytest.raises(CannotStartError, match="unable to open"):
        await open_database(f"sqlite:///{path}", schema)


async def test_read_cannot_write(database):
    with pytest.raises(OperationalError, match="readonly"):
        await database.read(add("a"))
    assert await database.read(bodies) == []


async def test_foreign_keys_are_enforced_and_commits_are_synchronous(database):
    with pytest.raises(IntegrityError):
        await database.write(lambda connection: connection.execute(insert(call).values(event_id=9)))

    def pragmas(connection: Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert await database.write(pragmas) == ["wal", 2, 1]


async def test_close_finishes_accepted_writes_and_refuses_later_ones(path):
    database = await open_database(f"sqlite:///{path}", schema_in(path.parent, metadata))
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()
    accepted = asyncio.create_task(database.write(add("a")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    gate.opened.set()
    await closing
    await asyncio.gather(first, accepted)
    with pytest.raises(DroverError, match="closed"):
        await database.write(add("b"))
    with pytest.raises(DroverError, match="closed"):
        await database.read(bodies)
    again = await open_database(f"sqlite:///{path}", schema_in(path.parent, metadata))
    assert await again.read(bodies) == ["a"]
    await again.close()


async def test_too_many_waiting_writes_are_refused_at_once(database, monkeypatch):
    monkeypatch.setattr("storage.sqlite._MAX_WAITING", 2)
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_until_entered()
    second = asyncio.create_task(database.write(add("a")))
    await asyncio.sleep(0)
    with pytest.raises(DroverError) as refused:
        await database.write(add("b"))
    assert refused.value.reason is Reason.RESOURCE_EXHAUSTED
    gate.opened.set()
    await asyncio.gather(first, second)
    await database.write(add("b"))


async def test_full_disk_refuses_writes_and_leaves_reads_and_nothing_by_halves(database, commits):
    await database.write(add("a"))

    def limit(connection: Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")

    await database.write(limit)
    results = await asyncio.gather(
        *[database.write(add(str(number) + "x" * 3000)) for number in range(10)],
        return_exceptions=True,
    )
    refused = [one for one in results if isinstance(one, DroverError)]
    assert {one.reason for one in refused} <= {Reason.RESOURCE_EXHAUSTED, Reason.UNAVAILABLE}
    assert Reason.RESOURCE_EXHAUSTED in {one.reason for one in refused}
    assert all(one.retry_after for one in refused)
    kept = [one for one in results if isinstance(one, int)]
    assert len(commits.bodies()) == 1 + len(kept)
    assert (await database.read(bodies))[0] == "a"
    with pytest.raises(DroverError) as told:
        await database.write(add("y" * 50_000))
    assert told.value.reason is Reason.RESOURCE_EXHAUSTED
    await database.write(
        lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 100000").close()
    )
    await database.write(add("y" * 50_000))


async def test_processes_that_start_at_once_on_a_new_file_all_come_up(path):
    program = f"""
import asyncio
from services.session.store.schema import SCHEMA
from storage import open_database

async def main():
    database = await open_database("sqlite:///{path}", SCHEMA)
    await database.close()

asyncio.run(main())
"""
    running = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program) for _ in range(4)
    ]
    assert [await one.wait() for one in running] == [0, 0, 0, 0]


async def test_file_that_is_no_database_is_refused_in_words(path):
    path.write_text("not a database" * 100)
    with pytest.raises(CannotStartError, match=r"test.db is no database: restore it"):
        await open_database(f"sqlite:///{path}", schema_in(path.parent, metadata))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db"])
async def test_engines_without_durability_or_support_are_refused(url, tmp_path):
    with pytest.raises(CannotStartError, match=r"in memory|no database engine"):
        await open_database(url, schema_in(tmp_path, metadata))
