from __future__ import annotations

import pytest

from tests.doubles.session_stack import running_service


@pytest.fixture
async def service(tmp_path):
    """A service without brains: tests hold leases themselves."""
    async with running_service(tmp_path) as running:
        yield running
