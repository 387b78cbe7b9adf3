"""What the `Database` port promises, over both engines."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import asyncpg
import pytest
from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from chassis.errors import DroverError, Reason
from storage import open_database
from tests.doubles.databases import schema_in, with_tables

metadata = MetaData()
event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("body", Text, nullable=False, unique=True),
)
call = Table("call", metadata, Column("event_id", ForeignKey("event.id"), nullable=False))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
async def database(url, tmp_path):
    async with with_tables(url, metadata, tmp_path) as opened:
        yield opened


@pytest.fixture
async def stranger(database, url):  # noqa: ARG001  # the tables must be there
    """What somebody who has nothing to do with the database's object sees: what is committed."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:

            async def look():
                return [row[0] for row in file.execute("SELECT body FROM event ORDER BY id")]

            yield look
        return
    connection = await asyncpg.connect(url, server_settings={"search_path": "drover_test"})

    async def ask():
        return [row[0] for row in await connection.fetch("SELECT body FROM event ORDER BY id")]

    yield ask
    await connection.close()


def add(body):
    def write(connection: Connection) -> int:
        return connection.execute(insert(event).values(body=body)).inserted_primary_key[0]

    return write


def bodies(connection):
    return list(connection.scalars(select(event.c.body).order_by(event.c.id)))


async def test_write_returns_what_its_function_does_and_is_seen_by_all(database, stranger):
    assert await database.write(add("a")) == 1
    assert await stranger() == ["a"]
    assert await database.read(bodies) == ["a"]


async def test_nothing_is_acknowledged_before_it_is_committed(database, stranger):
    one_at_a_time = asyncio.Lock()

    async def write_and_look(body):
        await database.write(add(body))
        async with one_at_a_time:
            return body in await stranger()

    assert all(await asyncio.gather(*[write_and_look(str(number)) for number in range(40)]))


async def test_failing_write_fails_alone(database, stranger):
    def half(connection):
        add("half")(connection)
        raise KeyError("half")

    results = await asyncio.gather(
        database.write(add("a")),
        *[database.write(half) for _ in range(20)],
        database.write(add("b")),
        return_exceptions=True,
    )
    assert isinstance(results[0], int)
    assert isinstance(results[-1], int)
    assert {type(result) for result in results[1:-1]} == {KeyError}
    assert sorted(await stranger()) == ["a", "b"]


async def test_statement_that_fails_in_one_write_hurts_no_other(database, stranger):
    await database.write(add("taken"))

    def taken(connection):
        add("before")(connection)
        try:
            add("taken")(connection)
        except IntegrityError:
            raise DroverError(Reason.ALREADY_EXISTS, "taken") from None

    others = [database.write(add(str(number))) for number in range(10)]
    refused = [database.write(taken) for _ in range(10)]
    mixed = [one for pair in zip(others, refused, strict=True) for one in pair]
    results = await asyncio.gather(*mixed, return_exceptions=True)
    assert all(isinstance(one, int) for one in results[::2])
    assert {one.reason for one in results[1::2]} == {Reason.ALREADY_EXISTS}
    assert sorted(await stranger()) == sorted(["taken", *map(str, range(10))])


async def test_function_goes_on_after_a_statement_that_failed_in_a_savepoint(database, stranger):
    def add_each(connection):
        for body in ("a", "b", "a", "c"):
            try:
                with connection.begin_nested():
                    add(body)(connection)
            except IntegrityError:
                add(f"{body} again {len(bodies(connection))}")(connection)

    await database.write(add_each)
    assert await stranger() == ["a", "b", "a again 2", "c"]
    for _ in range(3):  # on whichever connection
        await database.write(lambda connection: connection.execute(delete(event)))
        await database.write(add_each)
        assert len(await stranger()) == 4


async def test_exceptions_of_the_function_reach_its_caller_as_they_are(database):
    await database.write(add("a"))
    with pytest.raises(IntegrityError):
        await database.write(add("a"))
    with pytest.raises(ZeroDivisionError):
        await database.write(lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await database.read(lambda _: 1 // 0)
    refusal = DroverError(Reason.LEASE_LOST, "gone")

    def refuse(_connection):
        raise refusal

    with pytest.raises(DroverError) as raised:
        await database.write(refuse)
    assert raised.value is refusal
    with pytest.raises(RuntimeError, match="StopIteration"):
        await database.write(lambda _: next(iter(())))


async def test_writes_of_one_caller_happen_in_its_order(database, stranger):
    for number in range(50):
        await database.write(add(str(number)))
    assert await stranger() == [str(number) for number in range(50)]


async def test_writes_to_one_row_happen_one_after_the_other(database):
    await database.write(add("0"))

    def count(connection):
        found = connection.execute(select(event).with_for_update()).one()
        connection.execute(update(event).values(body=str(int(found.body) + 1)))

    await asyncio.gather(*[database.write(count) for _ in range(60)])
    assert await database.read(bodies) == ["60"]


async def test_read_sees_one_snapshot_from_its_first_statement_on(database, stranger):
    await database.write(add("a"))

    def twice(connection):
        before = bodies(connection)
        for _ in range(5):  # others write meanwhile
            connection.execute(select(event.c.id)).all()
        return before, bodies(connection)

    reads = [asyncio.create_task(database.read(twice)) for _ in range(20)]
    writes = [asyncio.create_task(database.write(add(str(number)))) for number in range(20)]
    for before, after in await asyncio.gather(*reads):
        assert before == after
    await asyncio.gather(*writes)
    assert len(await stranger()) == 21


async def test_read_cannot_write(database, stranger):
    with pytest.raises(DBAPIError):
        await database.read(add("a"))
    assert await stranger() == []


async def test_references_are_enforced_at_once(database):
    def orphan(connection):
        with pytest.raises(IntegrityError):
            connection.execute(insert(call).values(event_id=9))
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(orphan)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20])
async def test_cancelled_callers_leave_the_others_and_the_database_whole(database, stranger, turns):
    writes = [asyncio.create_task(database.write(add(str(number)))) for number in range(40)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in writes[::2]:
        task.cancel()
    results = await asyncio.gather(*writes, return_exceptions=True)
    kept = [result for result in results if isinstance(result, int)]
    assert all(isinstance(one, int | asyncio.CancelledError) for one in results)
    assert all(isinstance(one, int) for one in results[1::2])
    await database.write(add("after"))
    seen = await stranger()
    # Whoever was cancelled does not know whether its write was kept; it was kept whole or not.
    assert len(kept) + 1 <= len(seen) <= 41
    assert {str(number) for number in range(1, 40, 2)} | {"after"} <= set(seen)
    await database.write(lambda connection: connection.execute(delete(event)))


async def test_cancelled_reads_leave_the_database_whole(database):
    await database.write(add("a"))
    reads = [asyncio.create_task(database.read(bodies)) for _ in range(40)]
    await asyncio.sleep(0)
    for task in reads[::2]:
        task.cancel()
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert all(result == ["a"] for result in results[1::2])
    assert await asyncio.gather(*[database.read(bodies) for _ in range(40)]) == [["a"]] * 40


async def test_close_finishes_what_was_accepted_and_refuses_what_comes(url, tmp_path, database):
    schema = schema_in(tmp_path, metadata)
    closing = await open_database(url, schema)
    accepted = [asyncio.create_task(closing.write(add(str(number)))) for number in range(30)]
    reading = asyncio.create_task(closing.read(bodies))
    await asyncio.sleep(0)
    await closing.close()
    assert all(isinstance(task.result(), int) for task in accepted)
    assert isinstance(reading.result(), list)
    for late in (closing.write(add("late")), closing.read(bodies)):
        with pytest.raises(DroverError, match="closed") as refused:
            await late
        assert refused.value.reason is Reason.UNAVAILABLE
    await closing.close()
    assert len(await database.read(bodies)) == 30


async def test_text_with_characters_of_every_kind_is_kept_or_refused_as_bad_input(database):
    strange = "\u00e4\u4e2d\U0001f9ea\u202e\ufeff\r\n\x01'\"\\%"
    await database.write(add(strange))
    assert await database.read(bodies) == [strange]
    [kept] = await asyncio.gather(database.write(add("a\x00b")), return_exceptions=True)
    if isinstance(kept, DroverError):  # PostgreSQL has no such text
        assert kept.reason is Reason.INVALID_ARGUMENT
    else:
        assert await database.read(bodies) == [strange, "a\x00b"]
