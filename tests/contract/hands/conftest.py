from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.hands_stack import CLUSTERS, KINDS, RUNTIMES, HandsStack, Sandboxes, chosen


@pytest.fixture(params=KINDS + RUNTIMES + CLUSTERS)
def sandboxes(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox that there is."""
    return chosen(request)


@pytest.fixture
async def hands(sandboxes: Sandboxes, tmp_path: Path) -> AsyncIterator[HandsStack]:
    async with sandboxes.stack(tmp_path) as stack:
        yield stack
