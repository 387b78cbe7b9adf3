from __future__ import annotations

import pytest

from tests.doubles.databases import be_patient


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    be_patient(monkeypatch)
