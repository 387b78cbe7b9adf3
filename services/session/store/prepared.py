"""Statements of the hot path: compiled once, then given to the driver as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import BindParameter, Connection
    from sqlalchemy.sql import ClauseElement


class Prepared:
    """A statement whose parameters and columns the driver takes and gives as they are.

    Executing it through SQLAlchemy costs several times what SQLite takes for it, and every turn
    waits for some twenty. Only for drivers with parameters by position; a column of truth values
    comes as the driver has it.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._sql = ""
        self._names: tuple[str, ...] = ()
        self._fixed: dict[str, Any] = {}

    def execute(self, connection: Connection, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        """Runs it once; the cursor has the rows."""
        cursor = self._cursor(connection)
        return cursor.execute(self._sql, self._values(parameters))

    def execute_each(self, connection: Connection, each: Iterable[Mapping[str, Any]]) -> None:
        """Runs it once with each of the parameters."""
        cursor = self._cursor(connection)
        cursor.executemany(self._sql, [self._values(parameters) for parameters in each])

    def _values(self, parameters: Mapping[str, Any]) -> list[Any]:
        if self._fixed:
            parameters = {**self._fixed, **parameters}
        return [parameters[name] for name in self._names]

    def _cursor(self, connection: Connection) -> sqlite3.Cursor:
        if not self._sql:
            compiled = self._statement.compile(dialect=connection.dialect)
            names = compiled.positiontup  # type: ignore[attr-defined]  # of every SQL compiler
            if names is None:
                msg = f"the driver of {connection.dialect.name} takes no parameters by position"
                raise TypeError(msg)
            self._fixed = {
                name: value for name, value in compiled.params.items() if value is not None
            }
            self._names = tuple(names)
            self._sql = str(compiled)
        driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
        return driver.cursor()


class PreparedAmong:
    """A statement with a list among its parameters, prepared for each length up to doubling.

    `make` gives the statement for a list of that many parameters; the last value is repeated until
    the list is as long as one of them.
    """

    def __init__(self, make: Callable[[Sequence[BindParameter[Any]]], ClauseElement]) -> None:
        self._make = make
        self._by_length: dict[int, Prepared] = {}

    def execute(
        self, connection: Connection, parameters: Mapping[str, Any], values: Sequence[Any]
    ) -> sqlite3.Cursor:
        """Runs it once with the values, of which there is at least one."""
        length = 1 << (len(values) - 1).bit_length()
        names = [f"among_{number}" for number in range(length)]
        prepared = self._by_length.get(length)
        if prepared is None:
            prepared = Prepared(self._make([bindparam(name) for name in names]))
            self._by_length[length] = prepared
        padded = [*values, *[values[-1]] * (length - len(values))]
        return prepared.execute(connection, {**parameters, **dict(zip(names, padded, strict=True))})
