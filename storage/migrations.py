"""Brings a service's tables to what this release needs, one revision a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, func, insert, inspect, select, text
from sqlalchemy.schema import CreateSchema

from chassis.errors import CannotStartError
from storage.schema import ALEMBIC_VERSION, BOOKKEEPING, SCHEMA_FLOOR

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from storage.schema import Schema

_OLDEST_SERVER: Final = (13,)
_RELEASED_WITHOUT: Final = "schema_version"
"""What releases before migrations noted their one schema in."""


class SchemaError(CannotStartError):
    """The tables are not those that this release runs on; the message says what to do."""


def require(connection: Connection, schema: Schema) -> None:
    """Raises `SchemaError` unless this release runs on the tables that are there."""
    if connection.dialect.name == "postgresql":
        require_server(connection)
    revision = current(connection)
    if revision < schema.head:
        state = f"is at revision {revision:04}" if revision else "has no tables yet"
        msg = (
            f"the database of {schema.service} {state}, this release needs {schema.head:04}: "
            "run `drover migrate`"
        )
        raise SchemaError(msg)
    if revision > schema.head and (oldest := _oldest(connection)) > schema.head:
        msg = (
            f"the database of {schema.service} is at revision {revision:04}, which releases "
            f"older than revision {oldest:04} cannot use, and this one is {schema.head:04}: "
            "run a newer release"
        )
        raise SchemaError(msg)


def current(connection: Connection, name: str | None = None) -> int:
    """The revision of the tables in the schema `name`; 0 when no revision has been applied."""
    if not inspect(connection).has_table(ALEMBIC_VERSION.name, schema=name):
        return 0
    if name is not None:
        connection = connection.execution_options(schema_translate_map={None: name})
    found = connection.scalar(select(ALEMBIC_VERSION.c.version_num))
    return int(found) if found else 0


def require_server(connection: Connection) -> None:
    """Raises `SchemaError` for a PostgreSQL server or database that Drover cannot run on."""
    version = connection.dialect.server_version_info or ()
    if version < _OLDEST_SERVER:
        shown = ".".join(map(str, version))
        msg = f"PostgreSQL {shown} is too old: Drover needs {_OLDEST_SERVER[0]} or newer"
        raise SchemaError(msg)
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        msg = f"the database's encoding is {encoding}: make it with `createdb --encoding UTF8`"
        raise SchemaError(msg)


def advance(connection: Connection, schema: Schema) -> int | None:
    """Applies the next revision in the transaction that is open, holding off all others that try.

    Returns its number, or `None` when there is nothing to do. An empty SQLite file gets the newest
    tables at once. Raises `SchemaError` for tables that this release cannot use.
    """
    if connection.dialect.name == "postgresql":
        _prepare(connection, schema)
    revision = current(connection)
    if revision >= schema.head:
        require(connection, schema)
        return None
    if connection.dialect.name == "sqlite" and not inspect(connection).get_table_names():
        schema.metadata.create_all(connection)
        _stamp(connection, schema, schema.head)
        return schema.head
    upcoming = next(number for number in schema.revisions if number > revision)
    _apply(connection, schema, upcoming)
    _stamp(connection, schema, upcoming)
    return upcoming


def _prepare(connection: Connection, schema: Schema) -> None:
    """Waits for its turn, and makes the PostgreSQL schema."""
    require_server(connection)
    number = func.hashtextextended(schema.name, 0)
    connection.execute(select(func.pg_advisory_xact_lock(number)))
    # Asked first: IF NOT EXISTS alone needs a right that the owner of the schema may lack.
    if not inspect(connection).has_schema(schema.name):
        connection.execute(CreateSchema(schema.name, if_not_exists=True))


def _apply(connection: Connection, schema: Schema, number: int) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    folder = str(schema.migrations)
    script = ScriptDirectory(folder, version_locations=[folder])
    # Given to the revision rather than set for the whole process: services may migrate side by
    # side in one.
    operations = Operations(MigrationContext.configure(connection))
    revision: Any = script.get_revision(f"{number:04}")
    revision.module.upgrade(operations)


def _stamp(connection: Connection, schema: Schema, number: int) -> None:
    BOOKKEEPING.create_all(connection)
    connection.execute(text(f"DROP TABLE IF EXISTS {_RELEASED_WITHOUT}"))
    connection.execute(delete(ALEMBIC_VERSION))
    connection.execute(insert(ALEMBIC_VERSION).values(version_num=f"{number:04}"))
    oldest = max(_oldest(connection), schema.oldest if number == schema.head else 1)
    connection.execute(delete(SCHEMA_FLOOR))
    connection.execute(insert(SCHEMA_FLOOR).values(oldest=oldest))


def _oldest(connection: Connection) -> int:
    return connection.scalar(select(SCHEMA_FLOOR.c.oldest)) or 1
