"""Every store of the registry, by its port: the suite runs once per implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chassis.clock import SystemClock
from services.registry.store.agents import SqlAgentStore
from services.registry.store.environments import SqlEnvironmentStore
from services.registry.store.schema import SCHEMA
from storage import open_database
from tests.doubles.registry_store import MemoryAgentStore, MemoryEnvironmentStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from services.registry.domain.ports import AgentStore, EnvironmentStore
    from storage import Database


@pytest.fixture(params=["memory", "sqlite"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Database | None]:
    if request.param == "memory":
        yield None
        return
    database = await open_database(f"sqlite:///{tmp_path / 'registry.db'}", SCHEMA)
    yield database
    await database.close()


@pytest.fixture
def agents(database: Database | None) -> AgentStore:
    return (
        MemoryAgentStore(SystemClock())
        if database is None
        else SqlAgentStore(database, SystemClock())
    )


@pytest.fixture
def environments(database: Database | None) -> EnvironmentStore:
    return (
        MemoryEnvironmentStore(SystemClock())
        if database is None
        else SqlEnvironmentStore(database, SystemClock())
    )
