"""F25: clocks that are wrong, and clocks that are set. No lease is stolen early, nobody hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from tests.doubles.messages_api import Gate, text
from tests.doubles.postgres import Cluster
from tests.e2e.driving import history, new_session, run_turn, send, texts
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet

HOUR = 3600.0
SWEPT = 4.0
"""Seconds in which every replica has looked for leases that are over more than once."""
OVER = 60.0
"""Seconds within which a lease that is over is found, on a machine that is busy: not an hour."""

_BRAINS = ("brain-1", "brain-2")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Cluster
) -> Iterator[Replicas]:
    """Two brains, and session services on clocks of their own: one on SQLite, else two."""
    of_postgres = request.param == "postgresql"
    url = postgres.new_database() if of_postgres else None
    sessions = ("session-1", "session-2") if of_postgres else ("session-1",)
    names = ("registry", "hands", "vault_proxy", *sessions, *_BRAINS, "gateway-1")

    def prepare(stack: Replicas) -> None:
        for name in (*sessions, *_BRAINS):
            environment = stack.processes[name].environment
            environment["DROVER_TEST_SKEW"] = str(_clock(stack, name))
            set_clock(stack, name, 0)

    with running_fleet(tmp_path_factory.mktemp("clocks"), url, *names, prepare=prepare) as stack:
        yield stack


@pytest.fixture
def fleet(made: Replicas) -> Iterator[Replicas]:
    """The module's fleet: whole, on time, and with a script of its own."""
    for name in (*made.sessions, *_BRAINS):
        set_clock(made, name, 0)
    made.revive()
    made.model.reset()
    yield made
    made.model.reset()


def _clock(stack: Replicas, name: str) -> Path:
    return stack.data / f"{name}.clock"


def set_clock(stack: Replicas, name: str, seconds: float) -> None:
    """Sets a process's clock to so many seconds off."""
    _clock(stack, name).write_text(str(seconds))


def stolen(stack: Replicas, session_id: str) -> list[Any]:
    """What the services say of leases of a session that ran out or were lost."""
    told = stack.log(*stack.sessions, event="lease_expired")
    told += [line for line in stack.log(*_BRAINS) if line.get("reason") == "LEASE_LOST"]
    return [line for line in told if line.get("session_id") == session_id]


@contextmanager
def held_turn(stack: Replicas, client: Anthropic) -> Iterator[str]:
    """A session in the middle of a turn, which ends with the block."""
    gate = Gate()
    stack.model.script(text("done").stall(gate))
    session = new_session(client)
    send(client, session.id, "go")
    gate.wait_reached()
    yield session.id
    gate.release()
    log = stack.until_idle(client, session.id)
    assert texts(log, "agent.message") == ["done"]


def pass_by(seconds: float) -> None:
    """Lets so much time go by: it is what the test is about."""
    time.sleep(seconds)


def test_a_skew_of_five_minutes_between_hosts_changes_nothing(fleet: Replicas) -> None:
    set_clock(fleet, "session-1", 300)
    set_clock(fleet, "brain-1", -300)
    fleet.model.default(lambda _request: text("ok"))
    with fleet.client() as client:
        with held_turn(fleet, client) as session_id:
            pass_by(SWEPT)
        for turn in range(6):
            run_turn(client, session_id, f"turn {turn}")
        log = history(client, session_id)
    assert stolen(fleet, session_id) == []
    assert [event.processed_at for event in log] == sorted(event.processed_at for event in log)
    opened = [
        line["generation"]
        for line in fleet.log(*fleet.sessions, event="lease_opened")
        if line["session_id"] == session_id
    ]
    # One for each turn, and perhaps one of a brain that came after a turn's end.
    assert sorted(opened) == list(range(1, max(8, len(opened) + 1)))


def test_a_clock_that_is_set_by_an_hour_ends_no_lease(fleet: Replicas) -> None:
    with fleet.client() as client, held_turn(fleet, client) as session_id:
        for hours in (1, -1):
            for name in ("session-1", "brain-1", "brain-2"):
                set_clock(fleet, name, hours * HOUR)
            pass_by(SWEPT)
    assert stolen(fleet, session_id) == []


def test_a_lease_is_over_in_time_though_the_clock_was_set_back(fleet: Replicas) -> None:
    fleet.model.default(lambda _request: text("taken over"))
    gate = Gate()
    fleet.model.script(text("never").stall(gate))
    with fleet.client(max_retries=30) as client:
        session = new_session(client)
        send(client, session.id, "go")
        gate.wait_reached()
        brain, _ = fleet.holder(session.id)
        for name in fleet.sessions:
            set_clock(fleet, name, -HOUR)
        # With those who woke it gone, and before it, only its lease says that the brain lives.
        fleet.kill(*fleet.sessions, brain)
        fleet.start(*fleet.sessions)
        log = fleet.until_idle(client, session.id, deadline=OVER)
        assert texts(log, "agent.message") == ["taken over"]
    gate.release()
    assert stolen(fleet, session.id)  # which each replica may say that sees it
    opened = fleet.log(*fleet.sessions, event="lease_opened")
    assert len([line for line in opened if line["session_id"] == session.id]) >= 2
