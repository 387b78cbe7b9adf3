"""What every service's migrations keep to, on both engines."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from chassis.errors import CannotStartError
from storage import open_database
from storage.migrate import migrate
from storage.schema import BOOKKEEPING
from tests.doubles.databases import SCHEMAS, migrated, schema_of

RELEASED = Path(__file__).parent / "released_0_1"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture(params=SCHEMAS.values(), ids=SCHEMAS.keys())
def schema(request):
    return request.param


def differences(connection, schema):
    context = MigrationContext.configure(
        connection,
        opts={
            "include_name": lambda name, kind, _parents: (
                kind != "table" or name not in BOOKKEEPING.tables
            ),
            "compare_type": True,
            "compare_server_default": True,
        },
    )
    return compare_metadata(context, schema.metadata)


def reflected(connection):
    """All that the engine knows of the tables, in an order of its own for none of it."""
    inspector = inspect(connection)
    return {
        table: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], str(column["default"]))
                for column in inspector.get_columns(table)
            },
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "references": sorted(map(str, inspector.get_foreign_keys(table))),
            "unique": sorted(map(str, inspector.get_unique_constraints(table))),
            "indexes": sorted(map(described, inspector.get_indexes(table))),
        }
        for table in inspector.get_table_names()
        if table not in BOOKKEEPING.tables
    }


def described(index):
    conditions = [str(value) for value in index.get("dialect_options", {}).values()]
    return str([index["name"], index["column_names"], bool(index["unique"]), conditions])


def start_with_a_table_of_the_first_release(url):
    """A file that is not empty is not given the newest tables at once."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
        file.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY)")
    file.close()


async def test_migrations_from_empty_make_the_tables_of_the_code(url, schema):
    if url.startswith("sqlite"):
        start_with_a_table_of_the_first_release(url)
    told = []
    await migrate(url, schema, told.append)
    assert told == schema.revisions
    async with migrated(url, schema) as database:
        assert await database.write(lambda connection: differences(connection, schema)) == []
        stepwise = await database.read(reflected)

        def at_once(connection):
            for table in reversed([*schema.metadata.sorted_tables]):
                table.drop(connection)
            schema.metadata.create_all(connection)
            return reflected(connection)

        assert await database.write(at_once) == stepwise


async def test_migrating_again_changes_nothing(url, schema):
    await migrate(url, schema)
    told = []
    await migrate(url, schema, told.append)
    assert told == []


@pytest.mark.parametrize("service", sorted(file.stem for file in RELEASED.glob("*.sql")))
async def test_database_of_the_first_release_keeps_its_data(service, tmp_path):
    schema = SCHEMAS[service]
    path = tmp_path / "released.db"
    with sqlite3.connect(path) as file:
        file.executescript((RELEASED / f"{schema.service}.sql").read_text())
        before = contents(file)
    file.close()
    before.pop("schema_version", None)
    database = await open_database(f"sqlite:///{path}", schema)
    assert await database.write(lambda connection: differences(connection, schema)) == []
    await database.close()
    with sqlite3.connect(path) as file:
        after = contents(file)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
    file.close()
    for table, rows in before.items():
        assert [row[: len(old)] for row, old in zip(after[table], rows, strict=True)] == rows
    assert "schema_version" not in after


async def test_first_start_that_was_killed_half_way_is_completed(tmp_path):
    schema = SCHEMAS["session"]
    path = tmp_path / "half.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY)")
        for statement in (RELEASED / "session.sql").read_text().split(";"):
            if "CREATE TABLE sessions" in statement or "CREATE TABLE threads" in statement:
                file.execute(statement)
    file.close()
    database = await open_database(f"sqlite:///{path}", schema)
    assert await database.write(lambda connection: differences(connection, schema)) == []
    await database.close()


async def test_several_that_migrate_at_once_do_each_step_once(url, tmp_path):
    steps = [f"op.execute('CREATE TABLE t{number} (n INTEGER)')" for number in range(4)]
    schema = schema_of(tmp_path, steps)
    if url.startswith("sqlite"):
        start_with_a_table_of_the_first_release(url)
    told = []
    await asyncio.gather(*[migrate(url, schema, told.append) for _ in range(5)])
    assert sorted(told) == [1, 2, 3, 4]
    async with migrated(url, schema) as database:
        tables = await database.read(lambda connection: inspect(connection).get_table_names())
    assert {"t0", "t1", "t2", "t3"} <= set(tables)


async def test_step_that_fails_leaves_no_trace_and_is_taken_again(url, tmp_path):
    broken = schema_of(
        tmp_path,
        [
            "op.execute('CREATE TABLE a (n INTEGER)')",
            "op.execute('CREATE TABLE b (n INTEGER)'); 1/0",
        ],
    )
    if url.startswith("sqlite"):
        start_with_a_table_of_the_first_release(url)
    told = []
    with pytest.raises(CannotStartError, match="division by zero"):
        await migrate(url, broken, told.append)
    assert told == [1]
    (broken.migrations / "0002_expand_test.py").write_text(
        "revision = '0002'\ndown_revision = '0001'\ndef upgrade(op):\n"
        "    op.execute('CREATE TABLE b (n INTEGER)')"
    )
    await migrate(url, broken, told.append)
    assert told == [1, 2]


async def test_older_release_runs_on_newer_tables_down_to_the_floor(url, tmp_path):
    steps = ["op.execute('CREATE TABLE a (n INTEGER)')", "pass", "pass"]
    await migrate(url, schema_of(tmp_path, steps))
    old = schema_of(tmp_path, steps[:2])
    async with migrated(url, old) as database:  # which leaves the newer tables alone
        raised = text("UPDATE schema_floor SET oldest = 3")
        await database.write(lambda connection: connection.execute(raised))
    with pytest.raises(CannotStartError, match="run a newer release"):
        await open_database(url, old)
    with pytest.raises(CannotStartError, match="run a newer release"):
        await migrate(url, old)


async def test_service_on_postgres_says_what_to_do_when_it_was_not_migrated(postgres, tmp_path):
    url = postgres.new_database()
    schema = schema_of(tmp_path, ["pass"])
    with pytest.raises(CannotStartError, match=r"has no tables yet.*run `drover migrate`"):
        await open_database(url, schema)
    await migrate(url, schema)
    newer = schema_of(tmp_path, ["pass", "pass"])
    with pytest.raises(CannotStartError, match="at revision 0001, this release needs 0002"):
        await open_database(url, newer)


async def test_schema_that_the_owner_made_needs_no_further_right(postgres):
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    role = f"limited_{name}"
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'", database=name)
    limited = url.replace("//drover:", f"//{role}:")
    with pytest.raises(CannotStartError, match="GRANT CREATE ON DATABASE"):
        await migrate(limited, SCHEMAS["hands"])
    postgres.execute(f"CREATE SCHEMA drover_hands AUTHORIZATION {role}", database=name)
    async with migrated(limited, SCHEMAS["hands"]) as database:
        assert await database.read(lambda connection: connection.scalar(text("SELECT 1"))) == 1


async def test_lock_that_others_hold_for_a_while_only_delays_a_step(postgres, tmp_path):
    url = postgres.new_database()
    steps = ["op.execute('CREATE TABLE a (n INTEGER)')"]
    schema = schema_of(tmp_path, steps)
    async with migrated(url, schema) as database:
        await database.write(
            lambda connection: connection.execute(text("INSERT INTO a VALUES (1)"))
        )
        wider = schema_of(tmp_path, [*steps, "op.execute('ALTER TABLE a ADD COLUMN m INTEGER')"])

        def read_for_long(connection):
            connection.execute(text("SELECT n FROM a")).all()
            connection.execute(text("SELECT pg_sleep(2.6)"))
            return connection.scalar(text("SELECT count(*) FROM a"))

        reading = asyncio.create_task(database.read(read_for_long))
        await asyncio.sleep(0)
        told = []
        await migrate(url, wider, told.append)
        assert told == [2]
        assert await reading == 1


def test_first_start_on_sqlite_does_without_alembic(tmp_path):
    program = f"""
import asyncio, sys
from services.session.store.schema import SCHEMA
from storage import open_database

async def main():
    for _ in range(2):
        database = await open_database("sqlite:///{tmp_path}/session.db", SCHEMA)
        await database.close()

asyncio.run(main())
print([name for name in ("alembic", "asyncpg") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def contents(file):
    names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name: sorted(file.execute(f"SELECT * FROM {name}")) for (name,) in names}  # noqa: S608
