"""Two session services, two gateways and two brains on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.messages_api import text
from tests.doubles.postgres import Cluster
from tests.e2e.driving import new_session, run_turn, texts
from tests.e2e.replicas import Replicas, running_replicas


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Replicas]:
    """One stack for the module."""
    data = tmp_path_factory.mktemp("replicas")
    with running_replicas(data, postgres.new_database()) as stack:
        yield stack


@pytest.fixture
def replicas(live: Replicas) -> Iterator[Replicas]:
    """The module's stack, whole again and with a script of its own."""
    live.revive()
    live.model.reset()
    yield live
    live.model.reset()


def test_a_session_is_served_by_either_gateway(replicas: Replicas) -> None:
    replicas.model.script(text("one"), text("two"))
    with replicas.client() as client, replicas.client("gateway-2") as other:
        session = new_session(client)
        assert texts(run_turn(client, session.id, "first"), "agent.message") == ["one"]
        assert texts(run_turn(other, session.id, "second"), "agent.message") == ["two"]
