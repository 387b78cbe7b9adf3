"""Every store of sessions: the suite runs once per implementation."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from services.session.store.schema import SCHEMA
from tests.doubles.databases import be_patient, lent, made
from tests.doubles.session_database import opened
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import ManualClock


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    be_patient(monkeypatch)


@pytest.fixture
def clock():
    """The time of the stores that have none of their own."""
    return ManualClock()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
async def store(request, tmp_path, clock):
    """An empty store; a `new` one has nothing left of what was deleted, whose blocks are read."""
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path / 'session.db'}"
        elif request.param == "new":
            url = await made(request.getfixturevalue("postgres"), SCHEMA)
        else:
            url = await stack.enter_async_context(lent(request.getfixturevalue("postgres"), SCHEMA))
        yield await stack.enter_async_context(opened(url, clock))


@pytest.fixture
async def postgres_url(postgres):
    """A database with the service's tables, and nothing in them."""
    async with lent(postgres, SCHEMA) as url:
        yield url


@pytest.fixture
async def replicas(postgres_url, clock):
    """Two stores on one PostgreSQL schema, as two processes would have them."""
    async with opened(postgres_url, clock) as one, opened(postgres_url, clock) as other:
        yield one, other
