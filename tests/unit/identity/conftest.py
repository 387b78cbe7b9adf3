from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from identity.authority import Authority, place
from identity.table import Caller

NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.make(NOW)


@pytest.fixture(scope="session")
def certificates(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one of each caller."""
    folder = tmp_path_factory.mktemp("tls")
    for caller in Caller:
        place(folder / caller, authority.pem, authority.issue(caller, NOW))
    return folder
