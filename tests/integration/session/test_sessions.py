"""Sessions over gRPC: create, read, change, list, archive, delete."""

from __future__ import annotations

import pytest

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from drover.agent.v1.model_pb2 import MODEL_SPEED_FAST
from drover.api.v1 import metadata_pb2
from drover.session.v1 import session_pb2
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_events import idle, interrupt, message, running
from tests.doubles.session_stack import ENVIRONMENT_ID, refusal
from tests.doubles.session_world import kinds


def create_request(**fields):
    request = pb.CreateSessionRequest(**{"environment_id": ENVIRONMENT_ID} | fields)
    request.agent.agent.id = "agent_1"
    return request


async def listed(service, **fields):
    return await service.stub.ListSessions(pb.ListSessionsRequest(**fields))


async def test_a_session_holds_snapshots_of_agent_and_environment(service):
    created = await service.create(title="Flock", metadata={"a": "1"})
    session = await service.get(created.id)
    assert session.agent == service.agents.agent
    assert session.environment == service.environments.environment.config
    assert (session.title, dict(session.metadata)) == ("Flock", {"a": "1"})
    assert session.status == session_pb2.SESSION_STATUS_IDLE
    assert session.id.startswith("sesn_")
    assert session.primary_thread_id.startswith("sthr_")
    assert session.usage.HasField("active_seconds")


async def test_initial_events_make_a_running_session(service):
    created = await service.create(message("one"), message("two"))
    assert created.status == session_pb2.SESSION_STATUS_RUNNING
    assert kinds((await service.events(created.id)).data) == ["user_message"] * 2


async def test_one_bad_initial_event_creates_nothing(service):
    error = await refusal(service.create(message("good"), interrupt()))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert not (await listed(service)).data


async def test_unknown_agents_and_environments_are_not_found(service):
    request = create_request()
    request.agent.agent.id = "agent_other"
    assert (await refusal(service.stub.CreateSession(request))).reason is Reason.NOT_FOUND
    request = create_request(environment_id="env_other")
    error = await refusal(service.stub.CreateSession(request))
    assert error.rule.http == 404
    assert error.error_code == "environment_not_found"


async def test_an_archived_environment_is_refused_with_its_code(service):
    service.environments.environment.archived_at.seconds = 1
    error = await refusal(service.create())
    assert (error.rule.http, error.error_code) == (400, "environment_archived")


def budgeted(amount):
    request = create_request()
    request.budget.max_list_cost.amount = amount
    request.budget.max_list_cost.currency = "USD"
    return request


async def test_a_budget_is_the_sessions_from_its_creation_on(service):
    service.agents.agent.model.id = "claude-opus-5-5"
    session = (await service.stub.CreateSession(budgeted("2500"))).session
    assert session.budget.max_list_cost.amount == "2500"
    read = await service.stub.GetSession(pb.GetSessionRequest(session_id=session.id))
    assert read.session.budget == session.budget
    assert not (await service.create()).HasField("budget")


async def test_a_budget_that_could_never_be_measured_is_refused_at_once(service):
    refused = await refusal(service.stub.CreateSession(budgeted("2500")))
    assert (refused.rule.http, refused.error_code) == (400, "model_not_budgetable")
    assert refused.message.startswith("budget: model-1 has no list price")
    service.agents.agent.model.id = "claude-haiku-5-5"
    service.agents.agent.model.speed = MODEL_SPEED_FAST
    refused = await refusal(service.stub.CreateSession(budgeted("2500")))
    assert refused.error_code == "model_not_budgetable"
    assert "in fast mode" in refused.message


@pytest.mark.parametrize("amount", ["0", "", "01", "-1", "2.5", "1" * 19, "1e3"])
async def test_a_budget_is_whole_cents_above_zero(service, amount):
    service.agents.agent.model.id = "claude-opus-5-5"
    refused = await refusal(service.stub.CreateSession(budgeted(amount)))
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert refused.message.startswith("budget.max_list_cost.amount: ")


async def test_environments_that_no_sandbox_can_be_made_from_are_refused(service):
    cloud = service.environments.environment.config.cloud
    cloud.packages.pip.append("numpy")
    assert (await service.create()).environment_id
    cloud.sandbox = "kubernetes"
    assert "packages of their image" in (await refusal(service.create())).message
    cloud.packages.apt.append("jq")
    for kind in ("local", "kubernetes"):
        cloud.sandbox = kind
        refused = await refusal(service.create())
        assert refused.message.startswith("environment_id: ")
        assert "apt needs root" in refused.message
        assert "take docker sandboxes" in refused.message
    for kind in ("docker", ""):
        cloud.sandbox = kind
        assert (await service.create()).environment_id


async def test_another_workspace_finds_no_session_of_this_one(service):
    session = await service.create()
    ids = {"session_id": session.id}
    thread = {"thread_id": session.primary_thread_id}
    calls = [
        lambda: service.stub.GetSession(pb.GetSessionRequest(**ids)),
        lambda: service.stub.UpdateSession(pb.UpdateSessionRequest(title="mine", **ids)),
        lambda: service.stub.ArchiveSession(pb.ArchiveSessionRequest(**ids)),
        lambda: service.stub.DeleteSession(pb.DeleteSessionRequest(**ids)),
        lambda: service.stub.GetEvents(pb.GetEventsRequest(**ids)),
        lambda: service.stub.EmitEvents(pb.EmitEventsRequest(events=[message()], **ids)),
        lambda: service.stub.StreamEvents(pb.StreamEventsRequest(**ids)).read(),
        lambda: service.stub.GetThread(pb.GetThreadRequest(**ids, **thread)),
        lambda: service.stub.ListThreads(pb.ListThreadsRequest(**ids)),
        lambda: service.stub.GetThreadEvents(pb.GetThreadEventsRequest(**ids, **thread)),
        lambda: service.lease(session.id).open(),
    ]
    with call_context(CallContext(workspace_id="wrkspc_other")):
        for call in calls:
            assert (await refusal(call())).reason is Reason.NOT_FOUND
        assert not (await listed(service)).data
    assert (await service.get(session.id)).title == ""


async def test_lists_page_forwards_and_backwards(service):
    ids = [(await service.create()).id for _ in range(5)][::-1]
    first = await listed(service, limit=2)
    assert [one.id for one in first.data] == ids[:2]
    assert not first.HasField("prev_page")
    second = await listed(service, limit=2, page=first.next_page)
    third = await listed(service, limit=2, page=second.next_page)
    assert [one.id for one in third.data] == ids[4:]
    assert not third.HasField("next_page")
    back = await listed(service, limit=2, page=third.prev_page)
    assert [one.id for one in back.data] == ids[2:4]
    assert back.next_page == second.next_page
    home = await listed(service, limit=2, page=back.prev_page)
    assert [one.id for one in home.data] == ids[:2]
    assert not home.HasField("prev_page")


async def test_a_cursor_is_bound_to_order_and_filter(service):
    for _ in range(3):
        await service.create()
    cursor = (await listed(service, limit=1)).next_page
    for fields in (
        {"order": pb.SORT_ORDER_ASC},
        {"agent_id": "agent_1"},
        {"include_archived": True},
        {"deployment_id": "depl_1"},
        {"statuses": [session_pb2.SESSION_STATUS_IDLE]},
    ):
        error = await refusal(listed(service, page=cursor, **fields))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("page: ")
    assert (await refusal(listed(service, page="foreign"))).message.startswith("page: ")
    with call_context(CallContext(workspace_id="wrkspc_other")):
        assert (await refusal(listed(service, page=cursor))).message.startswith("page: ")


async def test_lists_are_filtered(service):
    idle_one, running_one = await service.create(), await service.create(message())
    archived = await service.create()
    await service.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=archived.id))

    async def ids(**fields):
        return [one.id for one in (await listed(service, **fields)).data]

    assert await ids() == [running_one.id, idle_one.id]
    assert await ids(order=pb.SORT_ORDER_ASC) == [idle_one.id, running_one.id]
    assert await ids(include_archived=True) == [archived.id, running_one.id, idle_one.id]
    assert await ids(statuses=[session_pb2.SESSION_STATUS_RUNNING]) == [running_one.id]
    assert await ids(agent_id="agent_1", agent_version=3) == [running_one.id, idle_one.id]
    assert await ids(agent_id="agent_1", agent_version=2) == []
    assert await ids(agent_id="agent_2") == []
    assert await ids(deployment_id="depl_1") == []
    assert await ids(memory_store_id="memstore_1") == []
    at = running_one.created_at
    assert await ids(created_at_gte=at) == [running_one.id]
    assert await ids(created_at_gt=at) == []
    assert await ids(created_at_lt=at) == [idle_one.id]
    assert await ids(created_at_lte=at) == [running_one.id, idle_one.id]
    error = await refusal(listed(service, agent_version=1))
    assert error.message.startswith("agent_version: ")


async def test_an_update_goes_by_the_registrys_rules_and_is_in_the_log(service):
    session = await service.create()
    request = pb.UpdateSessionRequest(
        session_id=session.id,
        title="Flock",
        metadata=metadata_pb2.MetadataPatch(set={"a": "1"}),
    )
    request.agent.tools.add().custom.name = "ask"
    request.agent.tools[0].custom.description = "asks"
    request.agent.tools[0].custom.input_schema = "{}"
    updated = (await service.stub.UpdateSession(request)).session
    assert updated.agent.tools[0].custom.name == "ask"
    [event] = (await service.events(session.id)).data
    assert event.session_updated.agent == updated.agent
    assert event.HasField("processed_at")


async def test_a_running_session_is_neither_archived_nor_deleted_nor_given_other_tools(service):
    session = await service.create(message())
    ids = {"session_id": session.id}
    update = pb.UpdateSessionRequest(**ids)
    update.agent.SetInParent()
    for call in (
        service.stub.ArchiveSession(pb.ArchiveSessionRequest(**ids)),
        service.stub.DeleteSession(pb.DeleteSessionRequest(**ids)),
        service.stub.UpdateSession(update),
    ):
        assert (await refusal(call)).reason is Reason.SESSION_RUNNING
    lease = await service.lease(session.id).open()
    await lease.append(running(), idle(), take=3, release=True)
    await service.stub.DeleteSession(pb.DeleteSessionRequest(**ids))
    assert (await refusal(service.get(session.id))).reason is Reason.NOT_FOUND


async def test_the_primary_thread_is_always_there(service):
    session = await service.create()
    response = await service.stub.ListThreads(pb.ListThreadsRequest(session_id=session.id))
    [thread] = response.data
    assert thread.id == session.primary_thread_id
    assert not thread.HasField("parent_thread_id")
    ids = {"session_id": session.id, "thread_id": thread.id}
    assert (await service.stub.GetThread(pb.GetThreadRequest(**ids))).thread == thread
    await service.emit(session.id, message())
    events = (await service.stub.GetThreadEvents(pb.GetThreadEventsRequest(**ids))).data
    assert kinds(events) == ["user_message"]
    ids["thread_id"] = "sthr_other"
    for call in (
        service.stub.GetThread(pb.GetThreadRequest(**ids)),
        service.stub.GetThreadEvents(pb.GetThreadEventsRequest(**ids)),
    ):
        assert (await refusal(call)).reason is Reason.NOT_FOUND


async def test_a_session_runs_from_the_moment_that_it_takes_a_message(service):
    """A client that asks until the session is idle must not find it so before its turn."""
    session = await service.create()
    await service.emit(session.id, message("hello"))
    assert (await service.get(session.id)).status == session_pb2.SESSION_STATUS_RUNNING
    request = pb.ListThreadsRequest(session_id=session.id)
    request.statuses.append(session_pb2.SESSION_STATUS_RUNNING)
    [thread] = (await service.stub.ListThreads(request)).data
    assert thread.status == session_pb2.SESSION_STATUS_RUNNING
