"""Every store of sessions: the suite runs once per implementation."""

from __future__ import annotations

import pytest

from tests.doubles.session_database import migrated, opened
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import ManualClock


@pytest.fixture
def clock():
    """The time of the stores that have none of their own."""
    return ManualClock()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
async def store(request, tmp_path, clock):
    """An empty store."""
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'session.db'}"
    else:
        url = await migrated(request.getfixturevalue("postgres"))
    async with opened(url, clock) as sql:
        yield sql


@pytest.fixture
async def postgres_url(postgres):
    """A database with the service's tables, and nothing in them."""
    return await migrated(postgres)


@pytest.fixture
async def replicas(postgres_url, clock):
    """Two stores on one PostgreSQL schema, as two processes would have them."""
    async with opened(postgres_url, clock) as one, opened(postgres_url, clock) as other:
        yield one, other
