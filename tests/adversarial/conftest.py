"""One stack with a credential of each kind for all who look for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.docker_engine import lacking
from tests.e2e.canary_stack import CanaryStack, canary_stack


@pytest.fixture(scope="session")
def canaries(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[CanaryStack]:
    """Has sandboxes of both kinds, where there is an engine."""
    engine = None if lacking() else request.getfixturevalue("docker_engine")
    place = tmp_path_factory.mktemp("canary") / "data"
    with canary_stack(place, tmp_path_factory.mktemp("peers"), engine) as running:
        yield running
