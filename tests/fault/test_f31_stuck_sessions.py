"""F31: no session stands still for long unseen, and none is called stuck that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.doubles.messages_api import Gate, ToolUse, text, tools
from tests.doubles.ports import free_port
from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.e2e.driving import TOOLSET, new_session, run_turn, send, texts
from tests.e2e.replicas import Replicas
from tests.e2e.stack import running_stack
from tests.fault.fleet import running_fleet
from tests.fault.storm import Storm, check, log_at_rest, worker_of_many_moods

SOAK_SECONDS = 120.0
SESSIONS = int(share(8, least=4))
LONG = 20.0
"""Seconds without an event that no session may stand still in a storm."""
SHORT = 2.0
AT_REST = "session.status_idle"
PARTS = ("registry", "session-1", "hands", "vault_proxy", "brain-1", "brain-2", "gateway-1")
ASKING = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}


@pytest.mark.timeout(limit(180))
def test_storm_of_kills_loses_nothing_runs_nothing_twice_and_leaves_no_session_standing(
    tmp_path: Path,
) -> None:
    with running_stack(tmp_path, DROVER_STUCK_SESSION_SECONDS=str(LONG)) as stack:
        stack.model.default(worker_of_many_moods)
        with stack.client() as client:
            storm = Storm(
                stack, [new_session(client).id for _ in range(SESSIONS)], seconds=_seconds()
            )
            assert storm.rage() >= 5
            stack.wait_ready()
            logs = {session: log_at_rest(client, session) for session in storm.sessions}
        told = _told(tmp_path / "logs" / "session.log")
        assert told == [], _dump(told, logs)
        check(storm, logs)


def _seconds() -> float:
    # Longer than what counts as standing still, or nothing could be found.
    return share(SOAK_SECONDS, least=LONG + 10)


def _dump(told: list[dict[str, Any]], logs: dict[str, list[Any]]) -> str:
    """What there is to see of the sessions that were told of."""
    lines = [json.dumps(line) for line in told]
    for session in {line["session_id"] for line in told}:
        lines += [f"{event.processed_at} {event.type} {event.id}" for event in logs[session]]
    return "\n".join(lines)


def _told(log: Path, event: str = "session_stuck") -> list[dict[str, Any]]:
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in map(json.loads, lines) if line["event"] == event]


class Watched:
    """A stack whose session service is quick to call a session stuck."""

    def __init__(self, stack: Replicas, port: int) -> None:
        self.stack = stack
        self._port = port

    def told(self, session_id: str, event: str = "session_stuck") -> list[dict[str, Any]]:
        lines = self.stack.log("session-1", event=event)
        return [line for line in lines if line["session_id"] == session_id]

    def wait_told(
        self, session_id: str, event: str = "session_stuck", **what: str
    ) -> dict[str, Any]:
        """The last that was told of it. On a busy machine it may have stood still before."""

        def last() -> list[dict[str, Any]]:
            told = self.told(session_id, event)
            return [line for line in told if what.items() <= line.items()][-1:]

        self.stack.wait_for(last, f"{event} {what}")
        return last()[0]

    def metric(self, name: str) -> float:
        text = httpx2.get(f"http://127.0.0.1:{self._port}/metrics").text
        [line] = [one for one in text.splitlines() if one.startswith(f"drover_session_{name} ")]
        return float(line.split()[1])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    cluster: Cluster = request.getfixturevalue("postgres")
    url = cluster.new_database() if request.param == "postgresql" else None
    port = free_port()

    def prepare(stack: Replicas) -> None:
        told = stack.processes["session-1"].environment
        told["DROVER_STUCK_SESSION_SECONDS"] = str(SHORT)
        told["DROVER_METRICS_LISTEN"] = f"127.0.0.1:{port}"

    data = tmp_path_factory.mktemp("stuck")
    with running_fleet(data, url, *PARTS, prepare=prepare) as stack:
        stack.wait_ready()
        yield Watched(stack, port)


@pytest.fixture
def watched(live: Watched) -> Iterator[Watched]:
    live.stack.revive()
    live.stack.model.reset()
    yield live
    for brain in ("brain-1", "brain-2"):
        if live.stack.processes[brain].alive:
            live.stack.resume(brain)


def test_session_of_a_brain_that_stands_still_is_told_of_while_its_lease_is_alive(
    watched: Watched,
) -> None:
    stack, gate = watched.stack, Gate()
    stack.model.script(text("stale").stall(gate, after="content_block_start"), text("fresh"))
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "work")
        gate.wait_reached()
        holder = watched.told(session.id, "lease_opened")[-1]["holder"]
        stack.pause(holder)
        line = watched.wait_told(session.id, holder=holder, waits_for="the model")
        assert line["last_event"] == "span.model_request_start"
        assert line["seconds"] >= SHORT
        stack.wait_for(lambda: watched.metric("stuck") == 1, "the count of it")
        # Its lease runs out, another brain takes over, and the session gets on.
        log = stack.until_idle(client, session.id, deadline=40)
        gate.release()
        assert texts(log, "agent.message") == ["fresh"]
        watched.wait_told(session.id, "session_no_longer_stuck")
        stack.wait_for(lambda: watched.metric("stuck") == 0, "the count of it")


def test_session_without_a_brain_is_told_of_and_those_at_rest_are_not(watched: Watched) -> None:
    stack = watched.stack
    stack.model.script(text("done"), tools(ToolUse("bash", {"command": "true"})), text("after all"))
    with stack.client() as client:
        idle, asking = new_session(client), new_session(client, tools=[ASKING])
        run_turn(client, idle.id, "work")
        assert run_turn(client, asking.id, "ask")[-1].stop_reason.type == "requires_action"
        stack.kill("brain-1", "brain-2")
        stuck = new_session(client)
        send(client, stuck.id, "work")
        line = watched.wait_told(stuck.id)
        assert (line["waits_for"], line["holder"], line["last_event"]) == ("a brain", "", "")
        stack.wait_for(lambda: watched.metric("stuck") == 1, "the count of it")
        stack.revive()
        log = stack.until_idle(client, stuck.id, deadline=40)
        assert texts(log, "agent.message") == ["after all"]
        watched.wait_told(stuck.id, "session_no_longer_stuck")
        stack.wait_for(lambda: watched.metric("stuck") == 0, "the count of it")
        # While they were at work they may have stood still, on a busy machine.
        told = [*watched.told(idle.id), *watched.told(asking.id)]
        assert [line for line in told if line["last_event"] == AT_REST] == []
