from __future__ import annotations

import pytest

from services.session.domain import lease
from tests.doubles.databases import be_patient
from tests.doubles.session_stack import running_service


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """No lease runs out, and no database is given up, because the machine is busy."""
    be_patient(monkeypatch)
    monkeypatch.setattr(lease, "LEASE_MICROS", 60_000_000)


@pytest.fixture
async def service(tmp_path):
    """A service without brains: tests hold leases themselves."""
    async with running_service(tmp_path) as running:
        yield running
