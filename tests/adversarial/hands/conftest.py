from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.hands_stack import HandsStack, hands_stack


@pytest.fixture
async def hands(tmp_path: Path) -> AsyncIterator[HandsStack]:
    async with hands_stack(tmp_path) as stack:
        yield stack
