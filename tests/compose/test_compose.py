"""The production shape: composed, used by the official client, and killed piece by piece."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import anthropic
import httpx2
import pytest

from tests.compose.composition import SERVICES, Composition, composed, lacking, wait_for
from tests.compose.stand_ins.model import PLAN
from tests.doubles.docker_engine import Engine
from tests.e2e.driving import TOOLSET, history, new_session, texts, user_message

pytestmark = pytest.mark.timeout(240)

BACK_SECONDS = 10.0
"""On a machine that has a processor for what starts; else as many times longer as work waits, and
three times in any case: what the load was in the last minute does not say what it is now."""
_SESSIONS = 4
_TURN_SECONDS = 60.0


@pytest.fixture(scope="module")
def stack(docker_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    if why := lacking():
        pytest.skip(why)
    with composed(docker_engine, tmp_path_factory.mktemp("compose")) as running:
        yield running


def bash(command: str) -> list[Any]:
    return ["bash", {"command": command}]


def plan(name: str, *rounds: list[Any]) -> dict[str, Any]:
    return user_message(PLAN + json.dumps([name, rounds]))


def test_official_client_runs_the_golden_path_and_one_trace_spans_it(stack: Composition) -> None:
    weigh = {
        "type": "custom",
        "name": "weigh",
        "description": "Weighs an animal.",
        "input_schema": {"type": "object", "properties": {"animal": {"type": "string"}}},
    }
    asked = {
        **TOOLSET,
        "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
    }
    wanted = plan(
        "golden",
        [bash("id -u; echo from-$((40 + 2)); ls /; curl -s http://192.0.2.1:9/")],
        [["weigh", {"animal": "cow"}]],
        [["write", {"file_path": "/workspace/note.txt", "content": "kept"}]],
        [bash("cat /workspace/note.txt")],
    )
    with stack.client() as client:
        session = new_session(client, tools=[asked, weigh])
        events = client.beta.sessions.events
        seen: list[Any] = []
        with events.stream(session.id) as stream:
            events.send(session.id, events=[wanted])
            for event in stream:
                seen.append(event)
                if event.type != "session.status_idle":
                    continue
                if event.stop_reason.type != "requires_action":
                    break
                [call] = event.stop_reason.event_ids
                use = next(one for one in seen if one.id == call)
                if use.type == "agent.custom_tool_use":
                    weight = [{"type": "text", "text": "700 kg"}]
                    answer = {"type": "user.custom_tool_result", "content": weight}
                    answer["custom_tool_use_id"] = call
                else:
                    answer = {"type": "user.tool_confirmation", "result": "allow"}
                    answer["tool_use_id"] = call
                events.send(session.id, events=[answer])  # type: ignore[list-item]
    first, written, read = texts(seen, "agent.tool_result")
    user, said, *root = first.split()
    assert int(user) >= 200_000  # a user of the session's own
    assert said == "from-42"
    assert "workspace" in root
    assert "data" not in root  # which is the hands' own container's
    assert "port_not_allowed" in first  # says the vault proxy: there is a way out to it
    assert "note.txt" in written
    assert "kept" in read
    assert texts(seen, "agent.message")[-1] == "done golden"
    processes = {"gateway", "session", "brain", "hands"}
    wait_for(
        lambda: any(processes <= set(names) for names in stack.traces().values()),
        60,
        lambda: f"one trace of four processes: {stack.traces()}",
    )


def test_containers_have_no_more_rights_than_they_need(stack: Composition) -> None:
    for service in SERVICES:
        host = stack.inspect(service)["HostConfig"]
        assert host["CapDrop"] == ["ALL"], service
        assert bool(host["CapAdd"]) == (service == "hands"), service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert host["ReadonlyRootfs"], service
        assert host["Memory"], service
        assert host["PidsLimit"], service
        assert not host["Privileged"], service
    engines = stack.engine.host.removeprefix("unix://")
    holders = [
        service
        for service in SERVICES
        if any(mount["Source"] == engines for mount in stack.inspect(service)["Mounts"])
    ]
    assert holders == ["engine-proxy"]
    assert stack.inspect("engine-proxy")["HostConfig"]["NetworkMode"] == "none"
    asked = "SELECT rolname FROM pg_roles WHERE rolsuper"
    psql = f'/usr/lib/postgresql/*/bin/psql --username postgres -At -c "{asked}"'
    container = stack.inspect("postgres")["Id"]
    assert stack.engine.docker("exec", container, "sh", "-c", psql).split() == ["postgres"]


class Load:
    """Sessions that work while containers are killed: turn after turn, each with a tool."""

    def __init__(self, stack: Composition) -> None:
        self._stack = stack
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.turns: dict[str, list[str]] = {}
        self.failed: list[BaseException] = []

    def __enter__(self) -> Self:
        with self._stack.client() as client:
            for place in range(_SESSIONS):
                session = new_session(client).id
                self.turns[session] = []
                self._threads.append(threading.Thread(target=self._work, args=(session, place)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def done(self) -> int:
        """Turns that have ended."""
        return sum(map(len, self.turns.values()))

    def _work(self, session: str, place: int) -> None:
        try:
            with self._stack.client() as client:
                while not self._stop.is_set():
                    name = f"{place}-{len(self.turns[session])}"
                    self._turn(client, session, name)
                    self.turns[session].append(name)
        except BaseException as error:  # noqa: BLE001  # told by the test
            self.failed.append(error)

    def _turn(self, client: anthropic.Anthropic, session: str, name: str) -> None:
        """One turn to its end, however often the stream breaks."""
        work = bash(f"echo {name} >> /workspace/marks; sleep 0.2; echo ran {name}")
        client.beta.sessions.events.send(session, events=[plan(name, [work])])  # type: ignore[list-item]
        deadline = time.monotonic() + _TURN_SECONDS
        while not self._ended(client, session, name):
            assert time.monotonic() < deadline, f"turn {name} does not end"
            with (
                suppress(anthropic.APIError, httpx2.TransportError),
                client.beta.sessions.events.stream(session) as events,
            ):
                if self._ended(client, session, name):
                    return
                next((event for event in events if event.type == "session.status_idle"), None)

    def _ended(self, client: anthropic.Anthropic, session: str, name: str) -> bool:
        found = client.beta.sessions.events.list(session, order="desc", limit=10)
        return f"done {name}" in texts(found.data, "agent.message")


def kill(stack: Composition, load: Load, service: str) -> float:
    """Kills a container in the middle of turns; for how many seconds the stack was not whole."""
    turns = load.done()
    wait_for(lambda: load.done() > turns or bool(load.failed), 60, stack.logs)
    before = stack.kill(service)
    crowd = max(3.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return wait_for(lambda: stack.is_back(service, before), BACK_SECONDS * crowd, stack.logs)


def test_each_container_is_killed_under_load_and_nothing_is_lost(stack: Composition) -> None:
    with Load(stack) as load:
        took = {service: kill(stack, load, service) for service in SERVICES}
    assert not load.failed, load.failed
    with stack.client() as client:
        for session, turns in load.turns.items():
            events = history(client, session)
            said = Counter(texts(events, "agent.message"))
            assert said == Counter(f"done {name}" for name in turns)
            assert len({event.id for event in events}) == len(events)
            kinds = Counter(event.type for event in events)
            assert kinds["user.message"] == kinds["agent.tool_use"] == len(turns)
            assert kinds["agent.tool_result"] == len(turns)
    print(f"back after: {took}; turns: {load.done()}")  # noqa: T201  # of runs that are looked at
