"""Agents and their versions in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, Row, Select, insert, select, update

from catalogue.resources.once import Once
from catalogue.resources.stamps import micros
from chassis.clock import Clock
from drover.agent.v1.agent_pb2 import Agent
from services.registry.domain.missing import no_agent
from services.registry.domain.ports import Listing
from services.registry.store.newest import newest
from services.registry.store.tables import AGENT_VERSIONS, AGENTS
from storage import Database
from storage.once import Answers

Found = Row[tuple[bytes, int | None]]

_A, _V = AGENTS.c, AGENT_VERSIONS.c


class SqlAgentStore:
    """Implements `AgentStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._answers = Answers(database, clock)

    async def add(self, workspace_id: str, agent: Agent, once: Once[Agent] | None = None) -> Agent:
        """Keeps a new agent at its version 1."""

        def write(connection: Connection) -> Agent:
            connection.execute(
                insert(AGENTS).values(
                    id=agent.id,
                    workspace_id=workspace_id,
                    version=agent.version,
                    created_at=micros(agent.created_at),
                )
            )
            _insert_version(connection, agent)
            return agent

        return await self._answers.write(write, once)

    async def get(self, workspace_id: str, agent_id: str, version: int | None = None) -> Agent:
        """An agent at `version`, its latest by default. Raises NOT_FOUND."""

        def read(connection: Connection) -> Agent:
            query = _one(workspace_id, agent_id)
            at = _A.version if version is None else version
            found = connection.execute(query.where(_V.version == at)).one_or_none()
            if found is None:
                raise no_agent(agent_id, version)
            return _agent(found)

        return await self._database.read(read)

    async def revise(
        self,
        workspace_id: str,
        agent_id: str,
        change: Callable[[Agent], Agent],
        once: Once[Agent] | None = None,
    ) -> Agent:
        """Keeps what `change` makes of the latest version. Raises NOT_FOUND."""

        def write(connection: Connection) -> Agent:
            stored = _latest(connection, workspace_id, agent_id, lock=True)
            changed = change(stored)
            if changed is stored:
                return stored
            _insert_version(connection, changed)
            # Fence: the version that `change` saw is still the latest (and the row is locked).
            moved = connection.execute(
                update(AGENTS)
                .where(_A.id == agent_id, _A.version == changed.version - 1)
                .values(version=changed.version)
            )
            if moved.rowcount != 1:
                msg = f"agent {agent_id} changed under its lock"
                raise RuntimeError(msg)
            return changed

        return await self._answers.write(write, once)

    async def archive(
        self, workspace_id: str, agent_id: str, at: datetime, once: Once[Agent] | None = None
    ) -> Agent:
        """Archives an agent; one that is archived keeps its time. Raises NOT_FOUND."""

        def write(connection: Connection) -> Agent:
            # Fence: only the first archiving sets the time.
            connection.execute(
                update(AGENTS)
                .where(_A.id == agent_id, _A.workspace_id == workspace_id, _A.archived_at.is_(None))
                .values(archived_at=micros(at))
            )
            return _latest(connection, workspace_id, agent_id)

        return await self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Agent]:
        """Agents at their latest versions, newest first."""
        query = newest(_versions().where(_V.version == _A.version), AGENTS, workspace_id, listing)

        def read(connection: Connection) -> Sequence[Agent]:
            return [_agent(found) for found in connection.execute(query)]

        return await self._database.read(read)

    async def versions(self, workspace_id: str, agent_id: str, listing: Listing) -> Sequence[Agent]:
        """An agent's versions, newest first. Raises NOT_FOUND."""
        query = _one(workspace_id, agent_id).order_by(_V.version.desc()).limit(listing.limit)
        if listing.after is not None:
            query = query.where(_V.version < listing.after.order)

        def read(connection: Connection) -> Sequence[Agent]:
            _latest(connection, workspace_id, agent_id)
            return [_agent(found) for found in connection.execute(query)]

        return await self._database.read(read)


def _versions() -> Select[tuple[bytes, int | None]]:
    return select(_V.definition, _A.archived_at).join_from(
        AGENTS, AGENT_VERSIONS, _V.agent_id == _A.id
    )


def _one(workspace_id: str, agent_id: str) -> Select[tuple[bytes, int | None]]:
    return _versions().where(_A.id == agent_id, _A.workspace_id == workspace_id)


def _latest(
    connection: Connection, workspace_id: str, agent_id: str, *, lock: bool = False
) -> Agent:
    if lock:
        # By itself: joined, a row that another writer has just moved on would no longer be found.
        connection.execute(select(_A.id).where(_A.id == agent_id).with_for_update())
    query = _one(workspace_id, agent_id).where(_V.version == _A.version)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_agent(agent_id)
    return _agent(found)


def _insert_version(connection: Connection, agent: Agent) -> None:
    connection.execute(
        insert(AGENT_VERSIONS).values(
            agent_id=agent.id, version=agent.version, definition=agent.SerializeToString()
        )
    )


def _agent(found: Found) -> Agent:
    agent = Agent.FromString(found.definition)
    if found.archived_at is not None:
        agent.archived_at.FromMicroseconds(found.archived_at)
    return agent
