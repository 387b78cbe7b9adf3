from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.docker_engine import Engine
from tests.doubles.engine_proxy import Proxy, running_proxy
from tests.doubles.hands_stack import (
    CLUSTERS,
    KINDS,
    RUNTIMES,
    UNFORKED,
    HandsStack,
    Sandboxes,
    chosen,
)


@pytest.fixture(scope="session")
def engine_proxy(
    docker_engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """What stands before the engine where it is not the hands' own: all that is promised of
    containers holds through it. (Other runtimes, and the tests of attacks, are without.)
    """
    with running_proxy(docker_engine, roots=tmp_path_factory.getbasetemp()) as proxy:
        yield proxy


@pytest.fixture(params=KINDS + UNFORKED + RUNTIMES + CLUSTERS)
def sandboxes(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox that there is."""
    if request.param == "docker":
        proxy: Proxy = request.getfixturevalue("engine_proxy")
        return replace(chosen(request), host=proxy.host)
    return chosen(request)


@pytest.fixture
async def hands(sandboxes: Sandboxes, tmp_path: Path) -> AsyncIterator[HandsStack]:
    async with sandboxes.stack(tmp_path) as stack:
        yield stack
