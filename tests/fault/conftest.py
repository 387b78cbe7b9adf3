"""Stacks for the suites that break what is under them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.doubles import soak
from tests.doubles.hands_stack import RUNTIMES, HandsStack, Sandboxes, chosen
from tests.doubles.postgres import Cluster, running_cluster
from tests.e2e.stack import Stack, running_stack


@pytest.fixture(scope="session")
def breakable() -> Iterator[Cluster]:
    """A PostgreSQL server that may be stopped, paused and killed: what it says is durable, is."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def live_postgres_stack(
    tmp_path_factory: pytest.TempPathFactory, breakable: Cluster
) -> Iterator[Stack]:
    """One stack on that server, for every test that breaks the server only."""
    data = tmp_path_factory.mktemp("postgres")
    with running_stack(data, DROVER_DATABASE_URL=breakable.new_database()) as stack:
        yield stack


@pytest.fixture
def postgres_stack(live_postgres_stack: Stack) -> Iterator[Stack]:
    """The stack on PostgreSQL, whole again and with a script of its own."""
    live_postgres_stack.wait_ready()
    live_postgres_stack.model.reset()
    yield live_postgres_stack
    live_postgres_stack.model.reset()


@pytest.fixture(params=["stack", "postgres_stack"], ids=["sqlite", "postgresql"])
def either_stack(request: pytest.FixtureRequest) -> Stack:
    """A stack on SQLite, and then one on PostgreSQL."""
    stack: Stack = request.getfixturevalue(request.param)
    return stack


@pytest.fixture(params=["local", "docker", *(RUNTIMES if soak.share(1) >= 1 else ())])
def sandboxes(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox of this machine; those that are slow to start in long runs."""
    return chosen(request)


@pytest.fixture
async def hands(sandboxes: Sandboxes, tmp_path: Path) -> AsyncIterator[HandsStack]:
    """Sandboxes that may be broken."""
    async with sandboxes.stack(tmp_path) as stack:
        yield stack
