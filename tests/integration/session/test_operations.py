"""What operators are told of sessions, over gRPC."""

from __future__ import annotations

from chassis.context import CallContext, call_context
from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.session.v1 import operations_service_pb2 as pb
from drover.session.v1 import session_pb2
from drover.session.v1.operations_service_pb2_grpc import OperationsServiceStub
from tests.doubles.session_events import message, running
from tests.doubles.session_stack import TOKEN


async def active(service, **fields):
    async with open_channel(service.address, Secret(TOKEN)) as channel:
        request = pb.ListActiveSessionsRequest(**fields)
        return await OperationsServiceStub(channel).ListActiveSessions(request)


async def test_those_that_work_or_should_are_told_with_what_they_wait_for(service):
    await service.create()
    waiting = await service.create(message("one"), title="Waits")
    held = await service.create(message("two"))
    await (await service.lease(held.id).open()).append(running(), take=2)
    found = {one.id: one for one in (await active(service)).data}
    assert set(found) == {waiting.id, held.id}
    assert found[waiting.id].waits_for == "a brain"
    assert found[waiting.id].title == "Waits"
    assert not found[waiting.id].HasField("brain")
    assert not found[waiting.id].HasField("last_event")
    assert found[held.id].waits_for == "its brain"
    assert (found[held.id].brain, found[held.id].last_event) == ("brain", "session.status_running")
    assert found[held.id].status == session_pb2.SESSION_STATUS_RUNNING
    assert found[held.id].agent_name == service.agents.agent.name


async def test_another_workspace_and_more_than_were_asked_for_are_left_out(service):
    for _ in range(2):
        await service.create(message("one"))
    with call_context(CallContext("wrkspc_other")):
        assert not (await active(service)).data
    page = await active(service, limit=1)
    assert (len(page.data), page.has_more) == (1, True)
