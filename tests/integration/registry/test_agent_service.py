from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from drover.agent.v1 import agent_service_pb2 as pb
from drover.agent.v1.agent_pb2 import Agent
from drover.agent.v1.agent_service_pb2_grpc import AgentServiceStub
from drover.agent.v1.model_pb2 import EFFORT_LEVEL_HIGH, MODEL_SPEED_STANDARD, ModelConfig
from drover.agent.v1.multiagent_pb2 import AgentVersion, Coordinator, Multiagent, RosterEntry
from drover.agent.v1.tool_pb2 import AgentToolset, CustomTool, Tool
from services.registry.main import build
from tests.integration.registry.refusal import refusal

if TYPE_CHECKING:
    from services.registry.main import RegistrySettings

MODEL = ModelConfig(id="claude-opus-5-5")


async def create(agents: Any, name: str = "Ada", **fields: Any) -> Agent:
    request = pb.CreateAgentRequest(name=name, model=MODEL, **fields)
    return (await agents.CreateAgent(request)).agent


async def names_of_all_pages(agents: Any, **filters: Any) -> list[str]:
    names, page, rounds = [], None, 0
    while page or rounds == 0:
        request = pb.ListAgentsRequest(**filters, page=page)
        answer = await agents.ListAgents(request)
        names += [agent.name for agent in answer.data]
        page, rounds = answer.next_page, rounds + 1
    return names


async def test_created_agent_is_read_back_with_its_defaults_resolved(agents: Any) -> None:
    created = await create(agents, tools=[Tool(agent_toolset=AgentToolset())])
    read = (await agents.GetAgent(pb.GetAgentRequest(agent_id=created.id))).agent
    assert read == created
    assert read.id.startswith("agent_01")
    assert read.version == 1
    assert read.model.effort.type == EFFORT_LEVEL_HIGH
    assert read.model.speed == MODEL_SPEED_STANDARD
    assert read.execution_identity.HasField("service_account")
    assert read.tools[0].agent_toolset.default_config.enabled


async def test_agents_survive_a_restart(settings: RegistrySettings) -> None:
    async def serve_once(stack: AsyncExitStack) -> Any:
        server = await build(settings, stack)
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        return AgentServiceStub(channel)

    async with AsyncExitStack() as stack:
        created = await create(await serve_once(stack))
    async with AsyncExitStack() as stack:
        agents = await serve_once(stack)
        read = await agents.GetAgent(pb.GetAgentRequest(agent_id=created.id))
    assert read.agent == created


async def test_unknown_agents_and_versions_are_not_found(agents: Any) -> None:
    agent_id = (await create(agents)).id
    for call in (
        agents.GetAgent(pb.GetAgentRequest(agent_id="agent_none")),
        agents.GetAgent(pb.GetAgentRequest(agent_id=agent_id, version=2)),
        agents.UpdateAgent(pb.UpdateAgentRequest(agent_id="agent_none", name="x")),
        agents.ArchiveAgent(pb.ArchiveAgentRequest(agent_id="agent_none")),
        agents.ListAgentVersions(pb.ListAgentVersionsRequest(agent_id="agent_none")),
        agents.ResolveAgent(resolve("agent_none")),
    ):
        assert (await refusal(call)).reason is Reason.NOT_FOUND


async def test_another_workspace_sees_nothing(agents: Any) -> None:
    agent_id = (await create(agents)).id
    with call_context(CallContext(workspace_id="wrkspc_other")):
        error = await refusal(agents.GetAgent(pb.GetAgentRequest(agent_id=agent_id)))
        listed = await agents.ListAgents(pb.ListAgentsRequest())
    assert error.reason is Reason.NOT_FOUND
    assert list(listed.data) == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": ""}, "name: "),
        ({"name": "x" * 257}, "name: "),
        ({"description": "x" * 2049}, "description: "),
        ({"system": "x" * 100_001}, "system: "),
        ({"model": ModelConfig()}, "model.id: "),
        ({"model": ModelConfig(id="m", speed=9)}, "model.speed: "),
        ({"tools": [Tool()]}, "tools.0.type: "),
        ({"tools": [Tool()] * 129}, "tools: "),
        (
            {"tools": [Tool(custom=CustomTool(name="a b", description="d", input_schema="{}"))]},
            "tools.0.name: ",
        ),
        (
            {"tools": [Tool(custom=CustomTool(name="bash", description="d", input_schema="{}"))]},
            "tools.0.name: ",
        ),
        ({"metadata": {"k": "v" * 513}}, "metadata.k: "),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata: "),
        (
            {
                "multiagent": Multiagent(
                    coordinator=Coordinator(agents=[RosterEntry(agent=AgentVersion(id="a"))])
                )
            },
            "multiagent: not supported by this release",
        ),
    ],
)
async def test_bad_definitions_are_refused_by_path_and_nothing_is_stored(
    agents: Any, fields: dict[str, Any], path: str
) -> None:
    request = pb.CreateAgentRequest(**{"name": "Ada", "model": MODEL} | fields)
    error = await refusal(agents.CreateAgent(request))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith(path)
    assert await names_of_all_pages(agents, include_archived=True) == []


async def test_lists_are_paged_newest_first_until_they_end(agents: Any) -> None:
    for number in range(5):
        await create(agents, f"agent {number}")
    assert await names_of_all_pages(agents, limit=2) == [f"agent {n}" for n in (4, 3, 2, 1, 0)]
    exact = await agents.ListAgents(pb.ListAgentsRequest(limit=5))
    assert not exact.HasField("next_page")


async def test_a_page_has_20_agents_unless_asked_and_never_more_than_100(agents: Any) -> None:
    for number in range(21):
        await create(agents, str(number))
    first = await agents.ListAgents(pb.ListAgentsRequest())
    assert len(first.data) == 20
    assert first.HasField("next_page")
    for limit in (0, 101, -1):
        error = await refusal(agents.ListAgents(pb.ListAgentsRequest(limit=limit)))
        assert error.message.startswith("limit: ")


async def test_lists_hide_archived_agents_unless_asked(agents: Any) -> None:
    archived = await create(agents, "old")
    await create(agents, "new")
    await agents.ArchiveAgent(pb.ArchiveAgentRequest(agent_id=archived.id))
    assert await names_of_all_pages(agents) == ["new"]
    assert await names_of_all_pages(agents, include_archived=True) == ["new", "old"]


async def test_lists_take_time_bounds_that_include_both_ends(agents: Any) -> None:
    made = [await create(agents, str(number)) for number in range(3)]
    middle = made[1].created_at
    assert await names_of_all_pages(agents, created_at_gte=middle) == ["2", "1"]
    assert await names_of_all_pages(agents, created_at_lte=middle) == ["1", "0"]
    absurd = pb.ListAgentsRequest(created_at_gte=Timestamp(seconds=2**62))
    assert (await refusal(agents.ListAgents(absurd))).message.startswith("created_at[gte]: ")


async def test_a_cursor_only_fits_the_list_and_filters_it_came_from(agents: Any) -> None:
    for number in range(3):
        await create(agents, str(number))
    page = (await agents.ListAgents(pb.ListAgentsRequest(limit=1))).next_page
    agent_id = (await agents.ListAgents(pb.ListAgentsRequest())).data[0].id
    await agents.ListAgents(pb.ListAgentsRequest(limit=2, page=page))
    for call in (
        agents.ListAgents(pb.ListAgentsRequest(page=page, include_archived=True)),
        agents.ListAgents(pb.ListAgentsRequest(page=page, created_at_gte=Timestamp(seconds=1))),
        agents.ListAgents(pb.ListAgentsRequest(page="garbled")),
        agents.ListAgents(pb.ListAgentsRequest(page="")),
        agents.ListAgents(pb.ListAgentsRequest(page=page + "AAAA")),
        agents.ListAgentVersions(pb.ListAgentVersionsRequest(agent_id=agent_id, page=page)),
    ):
        error = await refusal(call)
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("page: ")
    with call_context(CallContext(workspace_id="wrkspc_other")):
        error = await refusal(agents.ListAgents(pb.ListAgentsRequest(page=page)))
    assert error.message.startswith("page: ")


async def test_versions_are_listed_newest_first_and_stay_readable(agents: Any) -> None:
    agent_id = (await create(agents, "v1")).id
    for name in ("v2", "v3"):
        await agents.UpdateAgent(pb.UpdateAgentRequest(agent_id=agent_id, name=name))
    request = pb.ListAgentVersionsRequest(agent_id=agent_id, limit=2)
    first = await agents.ListAgentVersions(request)
    request.page = first.next_page
    second = await agents.ListAgentVersions(request)
    assert [agent.name for agent in first.data] == ["v3", "v2"]
    assert [agent.name for agent in second.data] == ["v1"]
    assert not second.HasField("next_page")
    one = await agents.GetAgent(pb.GetAgentRequest(agent_id=agent_id, version=1))
    assert (one.agent.name, one.agent.version) == ("v1", 1)


async def test_archiving_is_for_good_and_may_be_repeated(agents: Any) -> None:
    agent_id = (await create(agents)).id
    first = await agents.ArchiveAgent(pb.ArchiveAgentRequest(agent_id=agent_id))
    again = await agents.ArchiveAgent(pb.ArchiveAgentRequest(agent_id=agent_id))
    assert first.agent.HasField("archived_at")
    assert first == again
    update = pb.UpdateAgentRequest(agent_id=agent_id, name="Grace")
    assert (await refusal(agents.UpdateAgent(update))).reason is Reason.ARCHIVED
    error = await refusal(agents.ResolveAgent(resolve(agent_id)))
    assert (error.reason, error.rule.http) == (Reason.ARCHIVED, 400)


async def test_of_many_updates_under_one_version_exactly_one_wins(agents: Any) -> None:
    agent_id = (await create(agents)).id
    calls = [
        agents.UpdateAgent(pb.UpdateAgentRequest(agent_id=agent_id, version=1, name=f"n{number}"))
        for number in range(8)
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    won = [one for one in results if isinstance(one, pb.UpdateAgentResponse)]
    assert len(won) == 1
    versions = await agents.ListAgentVersions(pb.ListAgentVersionsRequest(agent_id=agent_id))
    assert [agent.name for agent in versions.data] == [won[0].agent.name, "Ada"]


async def test_unconditional_updates_at_once_each_get_a_version_of_their_own(agents: Any) -> None:
    agent_id = (await create(agents)).id
    updates = [
        pb.UpdateAgentRequest(agent_id=agent_id, metadata={"set": {f"k{number}": "v"}})
        for number in range(8)
    ]
    await asyncio.gather(*(agents.UpdateAgent(update) for update in updates))
    latest = (await agents.GetAgent(pb.GetAgentRequest(agent_id=agent_id))).agent
    assert latest.version == 9
    assert set(latest.metadata) == {f"k{number}" for number in range(8)}


def resolve(agent_id: str, **fields: Any) -> pb.ResolveAgentRequest:
    selection = pb.AgentSelection(agent=AgentVersion(id=agent_id, **fields))
    return pb.ResolveAgentRequest(selection=selection)


async def test_a_session_gets_the_latest_version_unless_it_names_one(agents: Any) -> None:
    agent_id = (await create(agents, "v1", metadata={"drover.harness": "x"})).id
    await agents.UpdateAgent(pb.UpdateAgentRequest(agent_id=agent_id, name="v2"))
    latest = (await agents.ResolveAgent(resolve(agent_id))).agent
    pinned = (await agents.ResolveAgent(resolve(agent_id, version=1))).agent
    assert (latest.name, latest.version) == ("v2", 2)
    assert (pinned.name, pinned.version) == ("v1", 1)
    assert pinned.metadata["drover.harness"] == "x"


async def test_overrides_change_the_sessions_copy_and_not_the_agent(agents: Any) -> None:
    agent_id = (await create(agents, system="be brief")).id
    overrides = pb.AgentWithOverrides(id=agent_id, model=ModelConfig(id="other"), system="")
    selection = pb.AgentSelection(agent_with_overrides=overrides)
    copy = (await agents.ResolveAgent(pb.ResolveAgentRequest(selection=selection))).agent
    assert (copy.model.id, copy.HasField("system"), copy.version) == ("other", False, 1)
    stored = (await agents.GetAgent(pb.GetAgentRequest(agent_id=agent_id))).agent
    assert (stored.model.id, stored.system) == (MODEL.id, "be brief")


async def test_a_null_model_override_has_its_error_code(agents: Any) -> None:
    agent_id = (await create(agents)).id
    overrides = pb.AgentWithOverrides(id=agent_id, override_mask={"paths": ["model"]})
    selection = pb.AgentSelection(agent_with_overrides=overrides)
    error = await refusal(agents.ResolveAgent(pb.ResolveAgentRequest(selection=selection)))
    assert error.error_code == "agent_model_required"


async def test_a_sessions_copy_is_revised_without_reading_the_agent(agents: Any) -> None:
    agent_id = (await create(agents)).id
    copy = (await agents.ResolveAgent(resolve(agent_id))).agent
    await agents.ArchiveAgent(pb.ArchiveAgentRequest(agent_id=agent_id))
    tools = [Tool(agent_toolset=AgentToolset())]
    request = pb.ReviseSessionAgentRequest(agent=copy, tools=tools)
    revised = (await agents.ReviseSessionAgent(request)).agent
    assert revised.tools[0].agent_toolset.default_config.enabled
