"""F5: a death after a result was recorded and before anybody was told: it is not made again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, says, text, tools
from tests.doubles.tcp_proxy import TcpProxy, Way
from tests.e2e.driving import history, new_session, send, texts
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet, serves

PARTS = ("registry", "session-1", "hands", "vault_proxy", "brain-1", "brain-2", "gateway-1")
_COMMAND = "echo ran >> marks; touch begun; while [ ! -e go ]; do sleep 0.02; done; echo done"


def port_of(address: str) -> int:
    """The port of `host:port`."""
    return int(address.rpartition(":")[2])


@dataclass
class Wired:
    """A fleet whose first brain hears of the session service and of the hands by these wires."""

    fleet: Replicas
    session: TcpProxy
    hands: TcpProxy

    def begin(self, client: Anthropic, name: str) -> str:
        """A session in the midst of a command that the first brain has sent."""
        fleet = self.fleet
        fleet.wait_for(lambda: serves(fleet, "brain-1"), "the first brain to serve")
        for number in range(8):
            words = f"{name} {number}."
            fleet.model.on(says(words), tools(ToolUse("bash", {"command": _COMMAND})))
            session: str = new_session(client).id
            send(client, session, words)
            begun = fleet.workspace(session) / "begun"
            fleet.wait_for(begun.exists, "the command to begin")
            if fleet.holder(session)[0] == "brain-1":
                return session
            (fleet.workspace(session) / "go").touch()
        pytest.fail("the first brain is not woken")

    def ended(self, client: Anthropic, session: str) -> list[Any]:
        """The log of the turn, which ran its command once and told of its one result."""
        log = self.fleet.until_idle(client, session)
        [result] = [event for event in log if event.type == "agent.tool_result"]
        assert (result.content[0].text.strip(), bool(result.is_error)) == ("done", False)
        assert (self.fleet.workspace(session) / "marks").read_text() == "ran\n"
        assert texts(log, "agent.message") == ["went on"]
        ids = [event.id for event in log]
        assert len(set(ids)) == len(ids)
        return log


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wired]:
    """One fleet for all: what dies is started again."""
    with ExitStack() as stack:
        wires: list[TcpProxy] = []

        def prepare(fleet: Replicas) -> None:
            for name in ("session-1", "hands"):
                wires.append(stack.enter_context(TcpProxy(port_of(fleet.address(name)))))
                variable = f"DROVER_{name.partition('-')[0].upper()}_ADDRESS"
                fleet.processes["brain-1"].environment[variable] = wires[-1].address

        data = tmp_path_factory.mktemp("wired")
        fleet = stack.enter_context(running_fleet(data, None, *PARTS, prepare=prepare))
        fleet.model.default(lambda _: text("went on"))
        yield Wired(fleet, *wires)


def recorded(wired: Wired, session: str) -> bool:
    """Whether the hands' journal has the result of the session's call."""
    with closing(sqlite3.connect(wired.fleet.data / "hands.db", timeout=10)) as journal:
        found = journal.execute(
            "SELECT count(result) FROM executions WHERE session_id = ?", (session,)
        )
        return bool(found.fetchone()[0])


@pytest.mark.parametrize("dead", [("brain-1",), ("hands",), ("brain-1", "hands")], ids="-".join)
def test_result_that_the_hands_recorded_and_did_not_tell_is_told_when_asked_again(
    wired: Wired, dead: tuple[str, ...]
) -> None:
    fleet = wired.fleet
    with fleet.client(max_retries=8) as client:
        session = wired.begin(client, f"untold by {dead}")
        wired.hands.stall(Way.DOWN)
        (fleet.workspace(session) / "go").touch()
        fleet.wait_for(lambda: recorded(wired, session), "the result to be recorded")
        assert "agent.tool_result" not in [event.type for event in history(client, session)]
        fleet.kill(*dead)
        wired.hands.cut()
        wired.hands.flow()
        fleet.start(*dead)
        wired.ended(client, session)


@pytest.mark.parametrize("dead", [("brain-1",), ("session-1",), ()], ids="-".join)
def test_result_that_the_log_has_and_that_was_not_acknowledged_is_appended_once(
    wired: Wired, dead: tuple[str, ...]
) -> None:
    fleet = wired.fleet
    with fleet.client(max_retries=8) as client:
        session = wired.begin(client, f"unacknowledged by {dead}")
        wired.session.stall(Way.DOWN)
        (fleet.workspace(session) / "go").touch()
        fleet.wait_for(
            lambda: "agent.tool_result" in [event.type for event in history(client, session)],
            "the result to be committed",
        )
        if dead:
            fleet.kill(*dead)
        wired.session.cut()
        wired.session.flow()
        if dead:
            fleet.start(*dead)
            fleet.wait_for(lambda: serves(fleet, dead[0]), "it to serve again")
        log = wired.ended(client, session)
    closed = [e for e in log if e.type == "span.model_request_end" and e.is_error]
    assert len(closed) <= len(dead)
