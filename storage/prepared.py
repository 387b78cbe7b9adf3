"""Statements of the hot path: compiled once, then given to the driver as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam
from sqlalchemy.util import await_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import BindParameter, Connection
    from sqlalchemy.sql import ClauseElement

    Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement as one driver takes it: its parameters by position, some of them fixed."""

    sql: str
    names: tuple[str, ...]
    fixed: Mapping[str, Any]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        if self.fixed:
            parameters = {**self.fixed, **parameters}
        return [parameters[name] for name in self.names]


class Prepared:
    """A statement whose parameters and columns the driver takes and gives as they are.

    Executing it through SQLAlchemy costs several times what the engine takes for it, and every turn
    waits for some twenty. Only for drivers with parameters by position; a column of truth values
    comes as the driver has it.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Row]:
        """Runs it once; answers its rows."""
        compiled = self._for(connection)
        values = compiled.values(parameters)
        driver: Any = connection.connection.driver_connection
        if connection.dialect.is_async:
            rows: Sequence[Row] = await_only(driver.fetch(compiled.sql, *values))
        else:
            rows = driver.execute(compiled.sql, values).fetchall()
        return rows

    def execute_each(self, connection: Connection, each: Iterable[Mapping[str, Any]]) -> None:
        """Runs it once with each of the parameters, in one round trip."""
        compiled = self._for(connection)
        values = [compiled.values(parameters) for parameters in each]
        driver: Any = connection.connection.driver_connection
        if connection.dialect.is_async:
            await_only(driver.executemany(compiled.sql, values))
        else:
            driver.executemany(compiled.sql, values)

    def execute_rows(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Runs it once with each of the rows, in one round trip.

        A row has the parameters in the statement's order: for an insert the table's columns.
        """
        compiled = self._for(connection)
        driver: Any = connection.connection.driver_connection
        if connection.dialect.is_async:
            await_only(driver.executemany(compiled.sql, rows))
        else:
            driver.executemany(compiled.sql, rows)

    def _for(self, connection: Connection) -> _Compiled:
        dialect = connection.dialect
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled = self._statement.compile(dialect=dialect)
            names = compiled.positiontup  # type: ignore[attr-defined]  # of every SQL compiler
            if names is None:
                msg = f"the driver of {dialect.name} takes no parameters by position"
                raise TypeError(msg)
            fixed = {name: value for name, value in compiled.params.items() if value is not None}
            found = self._compiled[dialect.name] = _Compiled(str(compiled), tuple(names), fixed)
        return found


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
    ) -> Sequence[Row]:
        """Runs it once with the values, of which there is at least one."""
        length = 1 << (len(values) - 1).bit_length()
        names = [f"among_{number}" for number in range(length)]
        prepared = self._by_length.get(length)
        if prepared is None:
            prepared = Prepared(self._make([bindparam(name) for name in names]))
            self._by_length[length] = prepared
        padded = [*values, *[values[-1]] * (length - len(values))]
        return prepared.execute(connection, {**parameters, **dict(zip(names, padded, strict=True))})
