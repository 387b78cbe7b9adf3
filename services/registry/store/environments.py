"""Environments in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, Row, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalogue.resources.once import Once
from catalogue.resources.stamps import micros
from chassis.clock import Clock
from drover.environment.v1.environment_pb2 import Environment
from services.registry.domain.missing import name_taken, no_environment
from services.registry.domain.ports import Listing
from services.registry.store.newest import newest
from services.registry.store.tables import ENVIRONMENTS
from storage import Database
from storage.answers import withdraw
from storage.once import Answers

Found = Row[tuple[bytes, int | None]]

_E = ENVIRONMENTS.c


class SqlEnvironmentStore:
    """Implements `EnvironmentStore`. The unique index over names is the fence for all writes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(
        self, workspace_id: str, environment: Environment, once: Once[Environment] | None = None
    ) -> Environment:
        """Keeps a new environment. Raises ALREADY_EXISTS when its name is taken."""
        statement = insert(ENVIRONMENTS).values(
            id=environment.id,
            workspace_id=workspace_id,
            name=environment.name,
            created_at=micros(environment.created_at),
            definition=environment.SerializeToString(),
        )

        def write(connection: Connection) -> Environment:
            with _unique_name(environment.name):
                connection.execute(statement)
            return environment

        return await self._answers.write(write, once, environment.id)

    async def get(self, workspace_id: str, environment_id: str) -> Environment:
        """Raises ENVIRONMENT_NOT_FOUND."""

        def read(connection: Connection) -> Environment:
            return load(connection, workspace_id, environment_id)

        return await self._database.read(read)

    async def revise(
        self,
        workspace_id: str,
        environment_id: str,
        change: Callable[[Environment], Environment],
        once: Once[Environment] | None = None,
    ) -> Environment:
        """Keeps what `change` makes of it. Raises ENVIRONMENT_NOT_FOUND, ALREADY_EXISTS."""

        def write(connection: Connection) -> Environment:
            stored = load(connection, workspace_id, environment_id, lock=True)
            changed = change(stored)
            if changed is not stored:
                # Fence: the row is locked since it was read.
                with _unique_name(changed.name):
                    connection.execute(
                        update(ENVIRONMENTS)
                        .where(_E.id == environment_id)
                        .values(name=changed.name, definition=changed.SerializeToString())
                    )
            return changed

        return await self._answers.write(write, once, environment_id)

    async def archive(
        self,
        workspace_id: str,
        environment_id: str,
        at: datetime,
        once: Once[Environment] | None = None,
    ) -> Environment:
        """Archives; an archived one keeps its time. Raises ENVIRONMENT_NOT_FOUND."""

        def write(connection: Connection) -> Environment:
            # Fence: only the first archiving sets the time.
            connection.execute(
                update(ENVIRONMENTS)
                .where(
                    _E.id == environment_id,
                    _E.workspace_id == workspace_id,
                    _E.archived_at.is_(None),
                )
                .values(archived_at=micros(at))
            )
            return load(connection, workspace_id, environment_id)

        return await self._answers.write(write, once, environment_id)

    async def delete(
        self, workspace_id: str, environment_id: str, once: Once[str] | None = None
    ) -> None:
        """Deletes, archived or not. Raises ENVIRONMENT_NOT_FOUND."""
        statement = delete(ENVIRONMENTS).where(
            _E.id == environment_id, _E.workspace_id == workspace_id
        )

        def write(connection: Connection) -> str:
            if connection.execute(statement).rowcount == 0:
                raise no_environment(environment_id)
            withdraw(connection, environment_id)
            return environment_id

        await self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Environment]:
        """Environments, newest first."""
        query = newest(_rows(), ENVIRONMENTS, workspace_id, listing)

        def read(connection: Connection) -> Sequence[Environment]:
            return [_environment(found) for found in connection.execute(query)]

        return await self._database.read(read)


def _rows() -> Select[tuple[bytes, int | None]]:
    return select(_E.definition, _E.archived_at)


def load(
    connection: Connection, workspace_id: str, environment_id: str, *, lock: bool = False
) -> Environment:
    """An environment as it is stored. Raises ENVIRONMENT_NOT_FOUND."""
    query = _rows().where(_E.id == environment_id, _E.workspace_id == workspace_id)
    found = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if found is None:
        raise no_environment(environment_id)
    return _environment(found)


def _environment(found: Found) -> Environment:
    environment = Environment.FromString(found.definition)
    if found.archived_at is not None:
        environment.archived_at.FromMicroseconds(found.archived_at)
    return environment


@contextmanager
def _unique_name(name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise name_taken(name) from None
