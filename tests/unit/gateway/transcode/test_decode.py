from __future__ import annotations

from typing import Any

import orjson
import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1 import agent_service_pb2 as agents
from drover.environment.v1 import environment_service_pb2 as environments
from drover.session.v1 import session_service_pb2 as sessions
from gateway.transcode.decode import Decoders
from gateway.transcode.request import RequestDecoder
from gateway.transcode.shape import Shapes

DECODERS = Decoders(Shapes())


def read(message_type: Any, body: object, path: dict[str, str] | None = None) -> Any:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    given = path or {}
    decoder = RequestDecoder(message_type.DESCRIPTOR, list(given), DECODERS, body=True)
    return decoder.decode(given, b"", {}, text)


def refusal(message_type: Any, body: object) -> DroverError:
    with pytest.raises(DroverError) as refused:
        read(message_type, body)
    return refused.value


def test_a_string_stands_for_an_object_wherever_the_contract_says_so() -> None:
    short = read(agents.CreateAgentRequest, {"model": "m", "name": "n"})
    long = read(agents.CreateAgentRequest, {"model": {"id": "m"}, "name": "n"})
    assert short == long
    assert read(agents.CreateAgentRequest, {"model": {"id": "m", "effort": "max"}}) == read(
        agents.CreateAgentRequest, {"model": {"id": "m", "effort": {"type": "max"}}}
    )
    selected = read(sessions.CreateSessionRequest, {"agent": "agent_1"})
    assert selected == read(
        sessions.CreateSessionRequest, {"agent": {"type": "agent", "id": "agent_1"}}
    )
    roster = {"type": "coordinator", "agents": ["agent_1", {"type": "self"}]}
    listed = read(agents.CreateAgentRequest, {"multiagent": roster}).multiagent.coordinator.agents
    assert [entry.WhichOneof("entry") for entry in listed] == ["agent", "self"]


def test_opaque_json_survives_byte_for_byte() -> None:
    schema = b'{ "z" :\t1.0,"a":[1E5 , 12345678901234567890123],\n"\\u00e9":{"b":null,"a":-0}}'
    body = (
        b'{"tools":[ {"type":"agent_toolset_20260401","configs":[{"name":"bash"}]},'
        b'{"input_schema": %b ,"type":"custom","name":"n"} ],"model":"m"}' % schema
    )

    request = read(agents.CreateAgentRequest, body)

    assert request.tools[1].custom.input_schema.encode() == schema
    assert request.tools[0].agent_toolset.configs[0].name == "bash"
    assert request.model.id == "m"


def test_null_reads_as_absent_and_an_empty_list_as_empty() -> None:
    body = {"model": "m", "name": None, "system": None, "tools": None, "metadata": None}
    assert read(agents.CreateAgentRequest, body) == read(agents.CreateAgentRequest, {"model": "m"})


def test_presence_mask_holds_the_keys_that_were_there_nulls_too() -> None:
    body = {"tools": [], "system": None, "metadata": {"a": None, "b.c": "d"}, "version": 3}
    request = read(agents.UpdateAgentRequest, body, {"agent_id": "agent_1"})

    assert list(request.update_mask.paths) == ["tools", "system", "metadata", "version"]
    assert not request.HasField("system")
    assert dict(request.metadata.set) == {"b.c": "d"}
    assert list(request.metadata.remove) == ["a"]
    assert request.agent_id == "agent_1"


def test_masks_are_of_the_message_they_stand_in() -> None:
    body = {"agent": {"type": "agent_with_overrides", "id": "a", "tools": [], "model": None}}
    overrides = read(sessions.CreateSessionRequest, body).agent.agent_with_overrides
    assert list(overrides.override_mask.paths) == ["id", "tools", "model"]

    body = {"agent": {"tools": None}, "title": None}
    update = read(sessions.UpdateSessionRequest, body, {"session_id": "s"})
    assert list(update.update_mask.paths) == ["agent", "title"]
    assert list(update.agent.update_mask.paths) == ["tools"]


def test_nothing_present_is_no_mask() -> None:
    request = read(environments.UpdateEnvironmentRequest, {}, {"environment_id": "e"})
    assert not request.HasField("update_mask")


def test_a_post_without_a_body_is_an_empty_object() -> None:
    empty = read(sessions.UpdateSessionRequest, b"", {"session_id": "s"})
    assert empty == read(sessions.UpdateSessionRequest, b"{}", {"session_id": "s"})


def test_a_constant_type_may_be_left_out_but_not_be_another() -> None:
    packages = {"packages": {"type": "packages", "pip": ["x"]}, "type": "cloud"}
    named = read(environments.CreateEnvironmentRequest, {"config": packages})
    del packages["packages"]["type"]
    assert read(environments.CreateEnvironmentRequest, {"config": packages}) == named

    packages["packages"]["type"] = "package"
    assert refusal(environments.CreateEnvironmentRequest, {"config": packages}).message == (
        "config.packages.type: must be packages"
    )


TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("message_type", "body", "message"),
    [
        (sessions.EmitEventsRequest, [], "the request body must be a JSON object"),
        (sessions.EmitEventsRequest, {"events": {}}, "events: must be an array"),
        (sessions.EmitEventsRequest, {"events": [None]}, "events.0: must be an object"),
        (sessions.EmitEventsRequest, {"events": ["x"]}, "events.0: must be an object"),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": "x"}]},
            "events.0.content: must be an array",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": [TEXT, {"type": "text", "text": 1}]}]},
            "events.0.content.1.text: must be a string",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": [{"type": "redacted"}]}]},
            "events.0.content.0.type: must be one of text, image, document, search_result",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": [], "id": "sevt_1"}]},
            "events.0.id: is set by the server",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": [], "processed_at": None}]},
            "events.0.processed_at: is set by the server",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.tool_confirmation", "result": "maybe"}]},
            "events.0.result: must be one of allow, deny",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.custom_tool_result", "is_error": "true"}]},
            "events.0.is_error: must be true or false",
        ),
        (sessions.UpdateSessionRequest, {"agent": None}, "agent: must not be null"),
        (
            sessions.CreateSessionRequest,
            {"budget": {"max_list_cost": {}}},
            "budget.type: is required: limit",
        ),
        (sessions.CreateSessionRequest, {"agent": 7}, "agent: must be a string or an object"),
        (
            sessions.CreateSessionRequest,
            {"metadata": {"k": 1}},
            "metadata.k: must be a string",
        ),
        (
            sessions.CreateSessionRequest,
            {"vault_ids": ["a", 1]},
            "vault_ids.1: must be a string",
        ),
        (agents.UpdateAgentRequest, {"model": None}, "model: must not be null"),
        (
            agents.UpdateAgentRequest,
            {"metadata": {"k": []}},
            "metadata.k: must be a string or null",
        ),
        (agents.UpdateAgentRequest, {"version": "1"}, "version: must be an integer"),
        (agents.UpdateAgentRequest, {"version": True}, "version: must be an integer"),
        (agents.UpdateAgentRequest, {"version": 1.5}, "version: must be an integer"),
        (
            agents.UpdateAgentRequest,
            {"version": 2**31},
            "version: must be between -2147483648 and 2147483647",
        ),
        (
            agents.CreateAgentRequest,
            {"model": {"id": "m", "effort": "extreme"}},
            "model.effort: must be one of low, medium, high, xhigh, max",
        ),
        (
            agents.CreateAgentRequest,
            {"model": {"id": "m", "speed": "unspecified"}},
            "model.speed: must be one of standard, fast",
        ),
        (
            agents.CreateAgentRequest,
            {"tools": [{"type": "custom"}, {"name": "x"}]},
            "tools.1.type: is required: one of agent_toolset_20260401, mcp_toolset, custom",
        ),
        (
            agents.CreateAgentRequest,
            {"tools": [{"type": "custom", "name": {"a": 1}}]},
            "tools.0.name: must be a string",
        ),
        (
            agents.CreateAgentRequest,
            {"tools": {"type": "custom"}},
            "tools: must be an array",
        ),
    ],
)
def test_what_the_contract_does_not_allow_is_refused_with_its_path(
    message_type: Any, body: object, message: str
) -> None:
    error = refusal(message_type, body)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message == message


@pytest.mark.parametrize(
    ("message_type", "body", "path"),
    [
        (sessions.EmitEventsRequest, {"generation": 1}, "generation"),
        (sessions.UpdateSessionRequest, {"session_id": "other"}, "session_id"),
        (sessions.UpdateSessionRequest, {"update_mask": "title"}, "update_mask"),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "content": [], "seq": 4}]},
            "events.0.seq",
        ),
        (
            sessions.EmitEventsRequest,
            {"events": [{"type": "user.message", "user_message": {}}]},
            "events.0.user_message",
        ),
        (
            agents.CreateAgentRequest,
            {"tools": [{"type": "agent_toolset_20260401", "default_config": {"x": 1}}]},
            "tools.0.default_config.x",
        ),
        (agents.CreateAgentRequest, {"type": "agent"}, "type"),
        (agents.CreateAgentRequest, {"k" * 1_000: 1}, "k" * 64 + "…"),
    ],
)
def test_a_key_that_http_does_not_have_is_unknown(
    message_type: Any, body: object, path: str
) -> None:
    given = {"session_id": "s"} if message_type is sessions.UpdateSessionRequest else None
    with pytest.raises(DroverError) as refused:
        read(message_type, body, given)
    assert refused.value.reason is Reason.UNKNOWN_FIELD
    assert refused.value.message == f"{path}: unknown field"


def test_a_client_may_send_the_seven_client_events_and_no_other() -> None:
    error = refusal(sessions.EmitEventsRequest, {"events": [{"type": "agent.message"}]})
    assert error.message.removeprefix("events.0.type: must be one of ").split(", ") == [
        "user.message",
        "user.interrupt",
        "user.tool_confirmation",
        "user.custom_tool_result",
        "user.tool_result",
        "user.define_outcome",
        "system.message",
    ]
