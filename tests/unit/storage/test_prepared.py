"""Statements that are given to the driver as they were compiled the first time."""

from __future__ import annotations

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    create_engine,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql

from storage.prepared import Prepared, PreparedAmong

things = Table(
    "things", MetaData(), Column("id", Integer, primary_key=True), Column("name", String)
)


@pytest.fixture
def connection():
    engine = create_engine("sqlite://")
    things.metadata.create_all(engine)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def test_parameters_find_their_places_by_name(connection):
    add = Prepared(insert(things))
    add.execute_each(connection, [{"name": "one", "id": 1}, {"id": 2, "name": "two"}])
    find = Prepared(select(things.c.name).where(things.c.id == bindparam("wanted")))
    assert [find.execute(connection, {"wanted": one}) for one in (2, 1, 3)] == [
        [("two",)],
        [("one",)],
        [],
    ]


def test_a_value_of_the_statement_itself_stays(connection):
    Prepared(insert(things)).execute(connection, {"id": 1, "name": "one"})
    clear = Prepared(update(things).where(things.c.id == bindparam("wanted")).values(name=""))
    clear.execute(connection, {"wanted": 1})
    assert Prepared(select(things)).execute(connection, {}) == [(1, "")]


def test_a_list_of_any_length_finds_what_is_in_it(connection):
    Prepared(insert(things)).execute_each(connection, [{"id": n, "name": "x"} for n in range(40)])
    among = PreparedAmong(
        lambda ids: select(things.c.id).where(
            things.c.name == bindparam("name"), things.c.id.in_(ids)
        )
    )
    for count in (1, 2, 3, 5, 31, 32, 33, 3):
        found = among.execute(connection, {"name": "x"}, list(range(count)))
        assert [row[0] for row in found] == list(range(count))


def test_a_missing_parameter_is_no_null(connection):
    with pytest.raises(KeyError):
        Prepared(insert(things)).execute(connection, {"id": 1})


def test_a_driver_with_named_parameters_is_refused():
    class Named:
        dialect = postgresql.dialect(paramstyle="pyformat")

    with pytest.raises(TypeError, match="by position"):
        Prepared(select(things)).execute(Named(), {})
