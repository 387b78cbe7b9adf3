"""The engine proxy before an engine that remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.engine_peer import Peer, proxied


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
async def proxy(peer: Peer, tmp_path: Path) -> AsyncIterator[Path]:
    """Where it listens."""
    async with proxied(peer, tmp_path) as path:
        yield path
