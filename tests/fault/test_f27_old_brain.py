"""F27: a brain of the release before, with the services and the tables of this one.

It passes the end-to-end tests: those here are theirs, over a stack whose brain is the old one.
"""

# ruff: noqa: F403  # whatever tests there are
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.soak import share
from tests.e2e.forked_service import RELEASE
from tests.e2e.replicas import Replicas
from tests.e2e.stack import KEY, Stack
from tests.e2e.test_golden_path import *
from tests.fault.fleet import running_fleet
from tests.fault.releases import unpacked

if share(1) >= 1:
    from tests.e2e.test_budgets import *
    from tests.e2e.test_content_blocks import *
    from tests.e2e.test_context import *
    from tests.e2e.test_interrupts import *
    from tests.e2e.test_permissions import *
    from tests.e2e.test_previews import *
    from tests.e2e.test_streaming import *
    from tests.e2e.test_system_messages import *

PARTS = ("registry", "session-1", "hands", "vault_proxy", "gateway-1", "brain-1")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """The services of this release, and a brain of the one before."""
    tree = unpacked(tmp_path_factory.mktemp("release"))

    def older(planned: Replicas) -> None:
        planned.processes["brain-1"].environment[RELEASE] = str(tree)

    with running_fleet(tmp_path_factory.mktemp("old"), None, *PARTS, prepare=older) as running:
        running.wait_ready()
        at = Path(f"/proc/{running.pid('brain-1')}/cwd").readlink()
        assert at == tree
        yield running


@pytest.fixture
def stack(fleet: Replicas) -> Iterator[Stack]:
    """The fleet as the end-to-end tests know a stack, with a script of its own."""
    fleet.model.reset()
    yield Stack(fleet.url(), KEY, fleet.data, fleet.model)
    fleet.model.reset()
