"""Every store of the registry, by its port: the suite runs once per implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from chassis.clock import SystemClock
from services.registry.store.agents import SqlAgentStore
from services.registry.store.environment_keys import SqlEnvironmentKeyStore
from services.registry.store.environments import SqlEnvironmentStore
from services.registry.store.schema import SCHEMA
from tests.doubles.databases import be_patient, migrated, opened
from tests.doubles.registry_keys import MemoryEnvironmentKeyStore
from tests.doubles.registry_memory import MemoryReplica
from tests.doubles.registry_store import MemoryAgentStore, MemoryEnvironmentStore
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from services.registry.domain.ports import (
        AgentStore,
        EnvironmentKeyStore,
        EnvironmentStore,
    )
    from storage import Database


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def databases(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[list[Database]]:
    """One database as two processes have it; none for the store in memory."""
    if request.param == "memory":
        yield []
        return
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster, processes=2) as databases:
        yield databases


@pytest.fixture(params=["sqlite", "postgres"])
async def emptied(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Database]]:
    """One database as two processes have it, with nothing in it."""
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster, processes=2) as databases:
        yield databases


@pytest.fixture
def all_agents(databases: list[Database]) -> list[AgentStore]:
    """Every process's store of one registry."""
    clock = SystemClock()
    return [SqlAgentStore(one, clock) for one in databases] or [MemoryAgentStore(clock)]


@pytest.fixture
def all_environments(databases: list[Database]) -> list[EnvironmentStore]:
    """Every process's store of one registry."""
    clock = SystemClock()
    return [SqlEnvironmentStore(one, clock) for one in databases] or [MemoryEnvironmentStore(clock)]


@pytest.fixture
def agents(all_agents: list[AgentStore]) -> AgentStore:
    return all_agents[0]


@pytest.fixture
def environments(all_environments: list[EnvironmentStore]) -> EnvironmentStore:
    return all_environments[0]


@pytest.fixture
def keys(databases: list[Database], environments: EnvironmentStore) -> EnvironmentKeyStore:
    clock = SystemClock()
    if isinstance(environments, MemoryEnvironmentStore):
        return MemoryEnvironmentKeyStore(environments, clock)
    return SqlEnvironmentKeyStore(databases[0], clock)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["sqlite", "postgres"], name="replicas"
)
async def memory_of_two_processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[MemoryReplica]]:
    """Memory in one database, which has the stores of all tests of a module."""
    url = f"sqlite:///{tmp_path_factory.mktemp('memory') / 'registry.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    async with PromptExit() as stack:
        yield [
            MemoryReplica(await stack.enter_async_context(migrated(url, SCHEMA))) for _ in range(2)
        ]


@pytest.fixture
def replica(replicas: list[MemoryReplica]) -> MemoryReplica:
    return replicas[0]
