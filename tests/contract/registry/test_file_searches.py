"""What is looked for among files is found by an index, however many others there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event

from services.registry.domain.ports import Listing
from services.registry.store.files import rows, sweep
from services.registry.store.files.tables import FILES
from services.registry.store.newest import newest
from services.registry.store.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

PAGE = newest(rows.query(), FILES, "wrkspc_1", Listing(21, include_archived=True))


@pytest.mark.parametrize(
    ("search", "index"),
    [
        (lambda found: sweep._expired(1, found), "files_by_expiry"),
        (lambda found: sweep._forget_files(1, found), "files_expired"),
        (lambda found: rows.made(found, "wrkspc_1", "sesn_1", "a.txt"), "files_made"),
        (lambda found: found.execute(PAGE), "files_newest"),
        (
            lambda found: found.execute(PAGE.where(FILES.c.session_id == "sesn_1")),
            "files_of_sessions",
        ),
    ],
)
def test_each_search_goes_by_its_index(search: Callable[[Connection], object], index: str) -> None:
    engine = create_engine("sqlite://")
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, sql: str, values: object, *_: object) -> None:
        asked.append((sql, values))

    with engine.connect() as connection:
        SCHEMA.metadata.create_all(connection)
        event.listen(engine, "before_cursor_execute", note)
        search(connection)
        event.remove(engine, "before_cursor_execute", note)
        [(sql, values)] = asked
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).scalars("detail")
        assert f"INDEX {index} (" in " ".join(steps)
    engine.dispose()


def test_an_upload_is_not_looked_for_among_what_sessions_made() -> None:
    engine = create_engine("sqlite://")  # without any tables
    with engine.connect() as connection:
        assert rows.made(connection, "wrkspc_1", "", "a.txt") is None
    engine.dispose()
