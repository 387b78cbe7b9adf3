"""Permission policies and answers, by the official SDK (EVENTS §10, SEMANTICS §3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError

from tests.doubles.messages_api import Gate, Reply, Request, ToolUse, error, text, tools
from tests.e2e.driving import MODEL, TOOLSET, history, new_session, run_turn, send, stamped, texts
from tests.e2e.stack import Stack

DESK: dict[str, Any] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {}},
}
AUTO = {**TOOLSET, "default_config": {"permission_policy": {"type": "auto"}}}
ASKING = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}


def for_judge(request: Request) -> bool:
    """Whether the model is asked to judge calls."""
    return str(request.body.get("system", "")).startswith("You are the permission check")


def verdicts(*given: dict[str, str]) -> Reply:
    """A judge's answer."""
    told = [{"call": number, **verdict} for number, verdict in enumerate(given, 1)]
    return text(json.dumps({"verdicts": told}))


def answer(client: Anthropic, session_id: str, *events: dict[str, Any]) -> list[Any]:
    sent: list[Any] = list(events)
    return list(client.beta.sessions.events.send(session_id, events=sent).data or [])


def confirmation(call: str, result: str, **more: str) -> dict[str, Any]:
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": result, **more}


def until_stop(stack: Stack, client: Anthropic, session_id: str, kind: str, idles: int) -> Any:
    """Waits for the nth idle event; answers it."""
    found: list[Any] = []

    def there() -> bool:
        log = history(client, session_id, types=["session.status_idle"])
        found[:] = log[idles - 1 : idles]
        return bool(found)

    stack.wait_for(there, f"idle event {idles}")
    assert found[0].stop_reason.type == kind
    return found[0]


def test_auto_lets_calls_run_asks_and_denies_with_reasons(stack: Stack) -> None:
    stack.model.on(
        for_judge,
        verdicts(
            {"verdict": "allow"},
            {"verdict": "deny", "reason": "high_risk"},
            {"verdict": "ask"},
        ),
    )
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo ran-$((40 + 2))"}),
            ToolUse("bash", {"command": "rm -rf /"}),
            ToolUse("bash", {"command": "echo deployed"}),
        ),
        text("done"),
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[AUTO])
        seen = stamped(run_turn(client, session.id, "work"))
        uses = [event for event in seen if event.type == "agent.tool_use"]
        assert [use.evaluated_permission for use in uses] == ["allow", "deny", "ask"]
        told = [use.evaluation.to_dict() for use in uses]
        assert told == [
            {"type": "auto", "evaluated_permission": {"type": "allow"}},
            {
                "type": "auto",
                "evaluated_permission": {"type": "deny", "reason_code": "high_risk"},
            },
            {
                "type": "auto",
                "evaluated_permission": {"type": "ask", "reason_code": "indeterminate"},
            },
        ]
        assert seen[-1].stop_reason.event_ids == [uses[2].id]
        answer(client, session.id, confirmation(uses[2].id, "allow"))
        log = stack.until_idle(client, session.id)
        ends = [event for event in log if event.type == "span.model_request_end"]
        usage = client.beta.sessions.retrieve(session.id).usage
    results = {event.tool_use_id: event for event in log if event.type == "agent.tool_result"}
    assert "ran-42" in results[uses[0].id].content[0].text
    assert results[uses[1].id].is_error
    assert results[uses[1].id].content[0].text == "Permission to use bash has been denied."
    assert "deployed" in results[uses[2].id].content[0].text
    # The judge's request is one of three, and all of them count.
    assert len(ends) == 3
    assert usage.output_tokens == sum(end.model_usage.output_tokens for end in ends)


def test_judge_that_fails_leaves_the_call_to_a_person(stack: Stack) -> None:
    stack.model.on(for_judge, error(529))
    stack.model.script(tools(ToolUse("bash", {"command": "echo x"})))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[AUTO])
        seen = run_turn(client, session.id, "work")
    assert seen[-1].stop_reason.type == "requires_action"
    assert session.id not in stack.sandboxes()


def test_auto_is_set_by_agents_overrides_and_updates(stack: Stack) -> None:
    with stack.client(_strict_response_validation=True) as client:
        agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[AUTO])
        assert agent.tools[0].default_config.permission_policy.type == "auto"
        updated = client.beta.agents.update(
            agent.id, version=agent.version, tools=[{**TOOLSET, "configs": [_auto("bash")]}]
        )
        assert updated.tools[0].configs[0].permission_policy.type == "auto"
        session = new_session(client)
        changed = client.beta.sessions.update(session.id, agent={"tools": [AUTO]})
        assert changed.agent.tools[0].default_config.permission_policy.type == "auto"
        stack.model.on(for_judge, verdicts({"verdict": "ask"}))
        stack.model.script(tools(ToolUse("glob", {"pattern": "*"})))
        assert run_turn(client, session.id, "look")[-1].stop_reason.type == "requires_action"
        environment = session.environment_id
        overriding: Any = {"type": "agent_with_overrides", "id": agent.id, "tools": [AUTO]}
        other = client.beta.sessions.create(agent=overriding, environment_id=environment)
        assert other.agent.tools[0].default_config.permission_policy.type == "auto"


def _auto(name: str) -> Any:
    return {"name": name, "permission_policy": {"type": "auto"}}


def test_some_answers_idle_again_with_the_rest_and_the_last_lets_all_run(stack: Stack) -> None:
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo one"}),
            ToolUse("ask_desk", {}),
            ToolUse("bash", {"command": "echo two"}),
            ToolUse("bash", {"command": "echo three"}),
        ),
        text("done"),
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[ASKING, DESK])
        waits = run_turn(client, session.id, "work")[-1].stop_reason.event_ids
        assert len(waits) == 4
        one, desk, two, three = waits
        answer(
            client,
            session.id,
            confirmation(three, "deny", deny_message="not three"),
            confirmation(one, "allow"),
        )
        again = until_stop(stack, client, session.id, "requires_action", 2)
        assert again.stop_reason.event_ids == [desk, two]
        assert session.id not in stack.sandboxes()
        said = {"type": "text", "text": "yes"}
        result = {"type": "user.custom_tool_result", "custom_tool_use_id": desk, "content": [said]}
        answer(client, session.id, result)
        again = until_stop(stack, client, session.id, "requires_action", 3)
        assert again.stop_reason.event_ids == [two]
        answer(client, session.id, confirmation(two, "allow"))
        log = stack.until_idle(client, session.id)
    results = {event.tool_use_id: event for event in log if event.type == "agent.tool_result"}
    assert "one" in results[one].content[0].text
    assert "two" in results[two].content[0].text
    assert results[three].content[0].text.endswith("not three")
    assert texts(log, "agent.message") == ["done"]
    order = [
        block["tool_use_id"] for block in stack.model.requests[-1].body["messages"][-1]["content"]
    ]
    assert len(order) == 4


def test_late_double_and_foreign_answers(stack: Stack) -> None:
    for _ in range(2):
        stack.model.script(tools(ToolUse("bash", {"command": "echo once >> ran; cat ran"})))
    stack.model.script(text("done"))
    with stack.client(_strict_response_validation=True) as client:
        session, other = (new_session(client, tools=[ASKING]) for _ in range(2))
        [call] = run_turn(client, session.id, "work")[-1].stop_reason.event_ids
        [foreign] = run_turn(client, other.id, "work")[-1].stop_reason.event_ids
        for bad in (foreign, "sevt_unknown"):
            with pytest.raises(BadRequestError, match=r"events\.0\.tool_use_id"):
                answer(client, session.id, confirmation(bad, "allow"))
        # The first answer counts, in one request and in the next.
        answer(client, session.id, confirmation(call, "allow"), confirmation(call, "deny"))
        stack.until_idle(client, session.id)
        [late] = answer(client, session.id, confirmation(call, "deny"))
        assert late.processed_at is not None
        log = history(client, session.id)
        waits = client.beta.sessions.retrieve(other.id)
    [result] = [event for event in log if event.type == "agent.tool_result"]
    assert result.content[0].text.split() == ["once"]
    assert [event.result for event in log if event.type == "user.tool_confirmation"] == ["allow"]
    assert waits.status == "idle"


def test_message_is_refused_while_answers_are_waited_for_and_queued_while_it_runs(
    stack: Stack,
) -> None:
    gate = Gate()
    stack.model.script(tools(ToolUse("ask_desk", {})), text("first").stall(gate), text("second"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[DESK])
        [desk] = run_turn(client, session.id, "ask")[-1].stop_reason.event_ids
        with pytest.raises(BadRequestError, match="waits for the answers"):
            send(client, session.id, "never mind")
        answer(client, session.id, {"type": "user.custom_tool_result", "custom_tool_use_id": desk})
        gate.wait_reached()
        [queued] = send(client, session.id, "and then?")
        assert queued.processed_at is None
        gate.release()
        log = stack.until_idle(client, session.id, answers=2)
    assert texts(log, "agent.message") == ["first", "second"]
    order = [event.type for event in log if event.type in ("user.message", "agent.message")]
    assert order == ["user.message", "agent.message", "user.message", "agent.message"]
