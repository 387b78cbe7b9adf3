"""F32: a service that can open no file and no connection degrades, and recovers by itself."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.backends.marks import Marks
from services.hands.settings import HandsSettings
from tests.doubles.hands_waiting import eventually
from tests.doubles.messages_api import ToolUse, says, text, tools
from tests.e2e.driving import new_session, send, texts
from tests.e2e.stack import Stack
from tests.fault.starved import without_descriptors
from tests.integration.hands.conftest import HandsProcess, settings

SERVICES = (
    *(("registry",), ("session",), ("hands",), ("vault_proxy",), ("gateway",)),
    ("brain-1", "brain-2"),
)
MOST = 16
"""Descriptors that the start of a sandbox needs no more than."""
FIT = {200, 429, 503, 504, 529}
"""What a request may be answered meanwhile, where it is answered at all."""


__all__ = ["settings"]  # the fixture


def status(stack: Stack, path: str) -> int:
    """What a new connection is answered; 0 for nothing."""
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{stack.url}{path}", headers=stack.headers, timeout=1).status_code
    return 0


def refuses(stack: Stack, service: str, seconds: float = 0.5) -> bool:
    """Whether a new connection to a service comes to nothing within so many seconds."""
    with stack.channel(service) as to_service:
        try:
            check = health_pb2.HealthCheckRequest()
            health_pb2_grpc.HealthStub(to_service).Check(check, timeout=seconds)
        except grpc.RpcError:
            return True
    return False


@pytest.mark.timeout(150)
@pytest.mark.parametrize("starved", SERVICES, ids=lambda names: names[0].removesuffix("-1"))
def test_service_without_descriptors_degrades_and_recovers_alone(
    own_stack: Stack, starved: tuple[str, ...]
) -> None:
    stack, command = own_stack, {"command": "echo $((6 * 7))"}
    before = {name: stack.pid(name) for name in starved}
    for number in range(3):
        stack.model.on(says(f"turn {number}"), tools(ToolUse("bash", command)), text("done"))
    with stack.client(max_retries=10) as client:
        sessions = [new_session(client) for _ in range(3)]
        with without_descriptors(*before.values()) as starve:
            # On the connection that is there, as that of a load balancer would be.
            for number in range(2):
                send(client, sessions[number].id, f"turn {number}")
            answered = [status(stack, path) for path in ("/v1/sessions", "/v1/agents", "/readyz")]
            starve()
            if "gateway" in starved:
                assert status(stack, "/readyz") != 200
            else:
                assert all(refuses(stack, name) for name in starved)
            if "hands" in starved:
                logs = [stack.until_idle(client, session.id) for session in sessions[:2]]
                # One got the spare sandbox.
                shown = [result for log in logs for result in texts(log, "agent.tool_result")]
                assert any("no sandbox could be started" in result for result in shown)
                assert all("Too many open files" in result or result == "42" for result in shown)
        stack.wait_ready()
        if "gateway" not in starved:
            stack.wait_for(
                lambda: not any(refuses(stack, name, 10) for name in starved), "recovery", 60
            )
        send(client, sessions[2].id, "turn 2")
        logs = [stack.until_idle(client, session.id) for session in sessions]
    assert {name: stack.pid(name) for name in starved} == before
    assert set(answered) <= FIT | {0}
    assert [texts(log, "agent.message") for log in logs] == [["done"]] * 3
    assert texts(logs[2], "agent.tool_result") == ["42"]


async def test_sandbox_that_runs_out_of_descriptors_anywhere_in_its_start_leaves_nothing(
    settings: HandsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_HANDS_SPARE_SANDBOXES", "0")
    hands = HandsProcess(settings.data_dir)
    await hands.start()
    pid = hands.process.pid
    verdicts = []
    try:
        await execute(hands, "sesn_first")
        await hands.client.Release(pb.ReleaseRequest(session_id="sesn_first", generation=1))
        await eventually(lambda: len(below(pid)) == 1)  # what agents are forked from
        files = open_files(pid)
        for spare in range(MOST):
            session = f"sesn_{spare}"
            with without_descriptors(pid, spare=spare):
                verdicts.append((await execute(hands, session)).verdict)
                await hands.client.Release(pb.ReleaseRequest(session_id=session, generation=1))
        assert set(verdicts) == {pb.VERDICT_NOT_RUN, pb.VERDICT_COMPLETED}
        assert verdicts[0] == pb.VERDICT_NOT_RUN
        assert verdicts[-1] == pb.VERDICT_COMPLETED
        await eventually(lambda: len(below(pid)) == 1)
        await eventually(lambda: open_files(pid) <= files)
        run = settings.data_dir / "hands" / "run"
        # The one file that is left says of whom nothing is left.
        assert {one.name for one in run.iterdir()} <= {"marks"}
        await eventually(lambda: not Marks(run / "marks").named())
        assert (await execute(hands, "sesn_last")).verdict == pb.VERDICT_COMPLETED
    finally:
        await hands.end(signal.SIGTERM)


async def execute(hands: HandsProcess, session: str) -> pb.ExecuteResponse:
    given = {"session_id": session, "call_id": "c1", "generation": 1}
    request = pb.ExecuteRequest(**given, name="bash", input='{"command":"true"}')
    async with asyncio.timeout(20):
        answer: pb.ExecuteResponse = await hands.client.Execute(request)
    return answer


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def below(pid: int) -> set[int]:
    """The children of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found.update(map(int, task.read_text().split()))
    return found
