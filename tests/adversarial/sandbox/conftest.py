"""Sandboxes of each kind: one for all the probes of a file, or a stack of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.doubles import soak
from tests.doubles.hands_stack import RUNTIMES, UNFORKED, HandsStack, Sandboxes, chosen

# Those of this machine: the pods of the tests' cluster are the local ones again.
_KINDS = ("local", "docker")
# Its sandboxes are slow to start: what needs several of them is for the long runs.
_BROKEN = (*_KINDS, *(RUNTIMES if soak.share(1) >= 1 else ()))


@pytest.fixture(params=[*_KINDS, *UNFORKED, *RUNTIMES], scope="module")
def everywhere(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox that there is."""
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    everywhere: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    """Sandboxes that every probe of the file may use, on the file's own loop.

    A probe leaves them as it found them, or takes a session of its own.
    """
    async with everywhere.stack(tmp_path_factory.mktemp("shared")) as stack:
        yield stack


@pytest.fixture(params=_BROKEN)
def sandboxes(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox that a test may start several of."""
    return chosen(request)


@pytest.fixture
async def hands(sandboxes: Sandboxes, tmp_path: Path) -> AsyncIterator[HandsStack]:
    """Sandboxes of a test that breaks things, or looks at what comes after."""
    async with sandboxes.stack(tmp_path) as stack:
        yield stack
