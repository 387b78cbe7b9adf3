"""`system.message`, by the official SDK (EVENTS §1)."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError

from tests.doubles.messages_api import Gate, Request, ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn, user_message
from tests.e2e.stack import Stack

DESK: dict[str, Any] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {}},
}


def system_message(*said: str) -> dict[str, Any]:
    return {"type": "system.message", "content": [{"type": "text", "text": part} for part in said]}


def post(client: Anthropic, session_id: str, *events: dict[str, Any]) -> list[Any]:
    sent: list[Any] = list(events)
    return list(client.beta.sessions.events.send(session_id, events=sent).data or [])


def shown(request: Request) -> list[tuple[str, list[str]]]:
    """What the model was sent, as roles and texts."""
    return [
        (message["role"], [block.get("text", block["type"]) for block in message["content"]])
        for message in request.body["messages"]
    ]


def test_it_is_said_with_its_message_holds_for_later_turns_and_keeps_the_prefix(
    stack: Stack,
) -> None:
    stack.model.script(text("Good day."), text("At nine."), text("At five."))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        sent = post(client, session.id, user_message("Hello"), system_message("Be formal.", "Sir."))
        assert [event.processed_at for event in sent] == [None, None]
        stack.until_idle(client, session.id)
        run_turn(client, session.id, "When do you open?")
        [alone] = post(client, session.id, system_message("Opening hours are 9 to 5."))
        assert alone.processed_at is not None
        assert client.beta.sessions.retrieve(session.id).status == "idle"
        assert history(client, session.id)[-1].type == "system.message"
        run_turn(client, session.id, "And close?")
        listed = history(client, session.id, types=["system.message"])
    assert [part.text for part in listed[0].content] == ["Be formal.", "Sir."]
    first, second, third = stack.model.requests[-3:]
    assert shown(third) == [
        ("user", ["Hello"]),
        ("system", ["Be formal.", "Sir."]),
        ("assistant", ["Good day."]),
        ("user", ["When do you open?"]),
        ("assistant", ["At nine."]),
        ("user", ["And close?"]),
        ("system", ["Opening hours are 9 to 5."]),
    ]
    mark = b',"cache_control":{"type":"ephemeral"}'
    bodies = [request.raw.replace(mark, b"").removesuffix(b"]}") for request in (first, second)]
    assert bodies[1].startswith(bodies[0])
    assert third.raw.replace(mark, b"").startswith(bodies[1])


def test_it_goes_with_a_tool_result_while_others_are_still_waited_for(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("ask_desk", {}), ToolUse("ask_desk", {})), text("I see."))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[DESK])
        one, two = run_turn(client, session.id, "ask")[-1].stop_reason.event_ids
        with pytest.raises(BadRequestError, match=r"events\.0: while the session waits"):
            post(client, session.id, system_message("Now."))

        def result(call: str) -> dict[str, Any]:
            return {"type": "user.custom_tool_result", "custom_tool_use_id": call}

        post(client, session.id, result(one), system_message("Prices are net."))
        post(client, session.id, result(two))
        stack.until_idle(client, session.id)
    assert shown(stack.model.requests[-1])[-2:] == [
        ("user", ["tool_result", "tool_result"]),
        ("system", ["Prices are net."]),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [system_message("a"), user_message("b")],
        [user_message("a"), system_message("b"), system_message("c")],
        [{"type": "user.interrupt"}, system_message("a")],
        [user_message("a"), {"type": "system.message", "content": []}],
        [user_message("a"), system_message(*["x"] * 1001)],
        [
            user_message("a"),
            {
                "type": "system.message",
                "content": [
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}}
                ],
            },
        ],
    ],
)
def test_in_a_wrong_place_or_shape_it_is_refused_with_all_of_its_request(
    stack: Stack, events: list[dict[str, Any]]
) -> None:
    with stack.client() as client:
        session = new_session(client)
        with pytest.raises(BadRequestError, match=r"events\."):
            post(client, session.id, *events)
        assert history(client, session.id) == []


def test_while_the_session_runs_it_needs_a_message_to_go_with(stack: Stack) -> None:
    gate = Gate()
    stack.model.script(text("first").stall(gate), text("second"))
    with stack.client() as client:
        session = new_session(client)
        post(client, session.id, user_message("one"))
        gate.wait_reached()
        with pytest.raises(BadRequestError, match=r"events\.0: while the session runs"):
            post(client, session.id, system_message("Quick."))
        post(client, session.id, user_message("two"), system_message("Quick."))
        gate.release()
        stack.until_idle(client, session.id, answers=2)
    assert shown(stack.model.requests[-1])[-2:] == [("user", ["two"]), ("system", ["Quick."])]


def test_model_without_such_messages_is_named_with_the_contracts_code(stack: Stack) -> None:
    with stack.client() as client:
        agent = client.beta.agents.create(name="clerk", model="claude-opus-4-6")
        other = new_session(client)
        session = client.beta.sessions.create(agent=agent.id, environment_id=other.environment_id)
        with pytest.raises(BadRequestError, match="claude-opus-4-6") as refused:
            post(client, session.id, user_message("a"), system_message("b"))
    details = refused.value.body["error"]["details"]  # type: ignore[index]
    assert details["error_code"] == "model_does_not_support_mid_conversation_system"
