"""F32: the kernel kills each service for want of memory, and the stack is whole again by itself."""

from __future__ import annotations

from contextlib import suppress

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.doubles.messages_api import ToolUse, says, text, tools
from tests.e2e.driving import new_session, send, texts
from tests.e2e.stack import Stack
from tests.fault.starved import MEMORY_GROUPS, killed_for_memory, without_memory
from tests.fault.vitals import SERVICES

EACH = (*SERVICES, "vault_proxy")

pytestmark = pytest.mark.skipif(
    MEMORY_GROUPS is None, reason="no control group for memory can be made here"
)


def feed(stack: Stack, service: str) -> None:
    """Sends a service more than it has room for."""
    much = "x" * 3_000_000
    if service == "gateway":
        with suppress(httpx2.HTTPError):
            httpx2.post(f"{stack.url}/v1/agents", json={"name": much}, headers=stack.headers)
        return
    with stack.channel(service) as to_service, suppress(grpc.RpcError):
        check = health_pb2.HealthCheckRequest(service=much)
        health_pb2_grpc.HealthStub(to_service).Check(check, timeout=2)


def killed(stack: Stack, service: str) -> None:
    """Has the kernel kill a service, and waits for that to show and for another to be there."""
    before = stack.pid(service)
    with without_memory(before) as group:

        def fed() -> bool:
            feed(stack, service)
            return killed_for_memory(group)

        stack.wait_for(fed, f"{service}'s end")
        stack.wait_for(lambda: stack.pids(service) not in (set(), {before}), f"another {service}")


@pytest.mark.timeout(200)
def test_every_service_that_is_killed_for_memory_comes_back_and_nothing_is_lost(
    own_stack: Stack,
) -> None:
    stack, command = own_stack, {"command": "echo ran >>ran; cat ran | wc -l"}
    with stack.client(max_retries=10) as client:
        session = new_session(client)
        for number, service in enumerate(EACH, 1):
            stack.model.on(
                says(f"turn {number}"), tools(ToolUse("bash", command)), text(f"done {number}")
            )
            killed(stack, service)
            send(client, session.id, f"turn {number}")
            log = stack.until_idle(client, session.id, answers=number)
            stack.wait_ready()
    turns = range(1, len(EACH) + 1)
    assert texts(log, "agent.message") == [f"done {number}" for number in turns]
    # Each command ran, and once.
    results = [shown.split("\n")[0] for shown in texts(log, "agent.tool_result")]
    assert results == [str(number) for number in turns]
