"""Every RPC of the registry that changes something has its effect once for its request."""

from __future__ import annotations

from typing import Any

import pytest

from chassis.errors import Reason
from drover.agent.v1 import agent_service_pb2 as agent_pb
from drover.environment.v1 import environment_service_pb2 as environment_pb
from tests.doubles.request_keys import answered, counted, metadata, named
from tests.integration.registry.refusal import refusal

RPCS = [
    "CreateAgent",
    "UpdateAgent",
    "ArchiveAgent",
    "CreateEnvironment",
    "UpdateEnvironment",
    "ArchiveEnvironment",
    "DeleteEnvironment",
]


@pytest.fixture
def stubs(agents: Any, environments: Any) -> tuple[Any, Any]:
    return agents, environments


async def prepared(stubs: tuple[Any, Any], rpc: str) -> tuple[Any, Any]:
    """The method, and a request that it can do just once."""
    agents, environments = stubs
    make_agent = agent_pb.CreateAgentRequest(name="clerk", model={"id": "m"})
    if rpc == "CreateAgent":
        return agents.CreateAgent, make_agent
    make_environment = environment_pb.CreateEnvironmentRequest(name="desk")
    if rpc == "CreateEnvironment":
        return environments.CreateEnvironment, make_environment
    if rpc.endswith("Agent"):
        made = (await agents.CreateAgent(make_agent)).agent
        request = getattr(agent_pb, f"{rpc}Request")(agent_id=made.id)
        if rpc == "UpdateAgent":
            request.version, request.name = 1, "another"
        return getattr(agents, rpc), request
    made = (await environments.CreateEnvironment(make_environment)).environment
    request = getattr(environment_pb, f"{rpc}Request")(environment_id=made.id)
    if rpc == "UpdateEnvironment":
        request.name = "another"
    return getattr(environments, rpc), request


@pytest.mark.parametrize("kind", ["named", "counted"])
@pytest.mark.parametrize("rpc", RPCS)
async def test_a_repeated_request_gets_the_first_answer(
    stubs: tuple[Any, Any], rpc: str, kind: str
) -> None:
    method, request = await prepared(stubs, rpc)
    keys = [named("k"), named("k")] if kind == "named" else [counted("k", 0), counted("k", 1)]
    first, replayed = await answered(method, request, keys[0])
    assert not replayed
    assert await answered(method, request, keys[1]) == (first, True)


@pytest.mark.parametrize("rpc", RPCS)
async def test_the_same_key_for_another_request_is_a_conflict(
    stubs: tuple[Any, Any], rpc: str
) -> None:
    method, request = await prepared(stubs, rpc)
    await answered(method, request, named("k"))
    refused = await refusal(method(request, metadata=metadata(named("k", "another"))))
    assert refused.reason is Reason.CONFLICT


async def test_a_refusal_is_no_answer_that_is_kept(stubs: tuple[Any, Any]) -> None:
    _, environments = stubs
    request = environment_pb.CreateEnvironmentRequest(name="desk")
    made = (await environments.CreateEnvironment(request)).environment
    call = environments.CreateEnvironment(request, metadata=metadata(named("k")))
    assert (await refusal(call)).reason is Reason.ALREADY_EXISTS
    await environments.DeleteEnvironment(
        environment_pb.DeleteEnvironmentRequest(environment_id=made.id)
    )
    again, replayed = await answered(environments.CreateEnvironment, request, named("k"))
    assert not replayed
    assert again.environment.id != made.id


async def test_what_was_made_and_deleted_is_not_made_again(stubs: tuple[Any, Any]) -> None:
    _, environments = stubs
    request = environment_pb.CreateEnvironmentRequest(name="desk")
    made, _ = await answered(environments.CreateEnvironment, request, named("k"))
    await environments.DeleteEnvironment(
        environment_pb.DeleteEnvironmentRequest(environment_id=made.environment.id)
    )
    refused = await refusal(environments.CreateEnvironment(request, metadata=metadata(named("k"))))
    assert refused.reason is Reason.NOT_FOUND


async def test_what_is_no_key_is_refused(stubs: tuple[Any, Any]) -> None:
    method, request = await prepared(stubs, "CreateAgent")
    call = method(request, metadata=(("x-drover-idempotency-bin", b"\xff"),))
    assert (await refusal(call)).reason is Reason.INVALID_ARGUMENT
