"""What the golden logs tell of: one session each, driven through a real stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from anthropic import Anthropic

from tests.doubles.messages_api import (
    Gate,
    Reply,
    ToolUse,
    Usage,
    error,
    max_tokens,
    refusal,
    stream_error,
    text,
    thinking,
    tools,
)
from tests.e2e.driving import MODEL, TOOLSET, new_session, run_turn, send
from tests.e2e.stack import Stack

Scenario = Callable[[Stack, Anthropic], str]
"""Drives one session to rest and answers its id."""

ENVIRONMENT: Final = {"DROVER_MODEL_ATTEMPTS": "3"}
"""What the stack must be told, so that giving up does not take minutes."""

ASKING: Final = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}
JUDGED: Final = {**TOOLSET, "default_config": {"permission_policy": {"type": "auto"}}}
CENT: Final = Usage(input_tokens=0, output_tokens=500)
"""What a request costs one cent with, at $20 for a million tokens out."""
FULL: Final = Usage(input_tokens=900_000)
"""So much of a window of a million tokens that it must be summarised."""
DOT: Final[dict[str, Any]] = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
        "awAAAABJRU5ErkJggg==",
    },
}
DESK: Final[dict[str, Any]] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
}


def plain_turns(stack: Stack, client: Anthropic) -> str:
    stack.model.script(text("hello there"), thinking("hm", "and again"))
    session = new_session(client)
    run_turn(client, session.id, "hello")
    run_turn(client, session.id, "hello again")
    return str(session.id)


def queued_messages(stack: Stack, client: Anthropic) -> str:
    gate = Gate()
    stack.model.script(text("to the first").stall(gate), text("to the second"), text("to the last"))
    session = new_session(client)
    send(client, session.id, "first")
    gate.wait_reached()
    send(client, session.id, "second", "last")
    gate.release()
    stack.until_idle(client, session.id, answers=3)
    return str(session.id)


def tool_turns(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo kept > note; cat note"}), say="let me see"),
        tools(ToolUse("read", {"file_path": "/workspace/note"})),
        text("done"),
    )
    session = new_session(client)
    run_turn(client, session.id, "work")
    return str(session.id)


def parallel_tools(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo one"}),
            ToolUse("write", {"file_path": "/workspace/two", "content": "two"}),
            ToolUse("no_such_tool", {}),
            ToolUse("bash", '{"command": "echo'),
        ),
        text("done"),
    )
    session = new_session(client)
    run_turn(client, session.id, "work")
    return str(session.id)


def interrupted_model(stack: Stack, client: Anthropic) -> str:
    gate = Gate()
    stack.model.script(text("never read").stall(gate, after="content_block_start"), text("better"))
    session = new_session(client)
    send(client, session.id, "work")
    gate.wait_reached()
    _interrupt(client, session.id)
    stack.until_idle(client, session.id, answers=0)
    gate.release()
    run_turn(client, session.id, "once more")
    return str(session.id)


def interrupted_tools(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "touch begun; sleep 600"}),
            ToolUse("read", {"file_path": "/workspace/nothing"}),
        ),
        text("better"),
    )
    session = new_session(client)
    send(client, session.id, "work")
    stack.wait_for((stack.workspace(session.id) / "begun").exists, "the command to begin")
    events: list[Any] = [{"type": "user.interrupt"}, _message("something else")]
    client.beta.sessions.events.send(session.id, events=events)
    stack.until_idle(client, session.id)
    return str(session.id)


def confirmations(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo allowed"}),
            ToolUse("bash", {"command": "echo denied"}),
        ),
        text("as you wish"),
    )
    session = new_session(client, tools=[ASKING])
    calls = run_turn(client, session.id, "work")[-1].stop_reason.event_ids
    verdicts = ({"result": "allow"}, {"result": "deny", "deny_message": "not that one"})
    # Together: whether a session comes to rest between two of them, time would tell.
    answers: Any = [
        {"type": "user.tool_confirmation", "tool_use_id": call, **verdict}
        for call, verdict in zip(calls, verdicts, strict=True)
    ]
    client.beta.sessions.events.send(session.id, events=answers)
    stack.until_idle(client, session.id)
    return str(session.id)


def custom_tools(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(ToolUse("ask_desk", {"q": "open?"}), ToolUse("bash", {"command": "echo meanwhile"})),
        text("the desk is open"),
        tools(ToolUse("ask_desk", {"q": "still?"})),
    )
    session = new_session(client, tools=[TOOLSET, DESK])
    waits = run_turn(client, session.id, "ask")
    _answer(client, session.id, waits[-1].stop_reason.event_ids[0])
    stack.until_idle(client, session.id)
    run_turn(client, session.id, "ask again")
    _interrupt(client, session.id)
    stack.until_idle(client, session.id)
    return str(session.id)


def model_errors(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        error(529, retry_after_ms=10),
        stream_error("overloaded_error"),
        text("after all"),
        *(error(529, retry_after_ms=10) for _ in range(3)),
        error(400),
        text("well again"),
    )
    session = new_session(client)
    for words in ("goes well", "exhausts", "is refused", "goes on"):
        run_turn(client, session.id, words)
    return str(session.id)


def odd_endings(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        max_tokens("cut off"),
        text("continued"),
        refusal("cyber", "no"),
        text("something harmless"),
    )
    session = new_session(client)
    for words in ("be long", "be evil", "be kind"):
        run_turn(client, session.id, words)
    return str(session.id)


def brain_killed_in_a_model_request(stack: Stack, client: Anthropic) -> str:
    gate = Gate()
    stack.model.script(text("lost").stall(gate, after="content_block_start"), text("by the next"))
    session = new_session(client)
    send(client, session.id, "work")
    gate.wait_reached()
    _kill_brains(stack)
    gate.release()
    stack.until_idle(client, session.id)
    return str(session.id)


def brain_killed_in_a_tool_call(stack: Stack, client: Anthropic) -> str:
    wait = "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo went"
    stack.model.script(tools(ToolUse("bash", {"command": wait})), text("finished"))
    session = new_session(client)
    send(client, session.id, "work")
    workspace = stack.workspace(session.id)
    stack.wait_for((workspace / "begun").exists, "the command to begin")
    _kill_brains(stack)
    (workspace / "go").touch()
    stack.until_idle(client, session.id)
    return str(session.id)


def updated_and_archived(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        text("without tools"), tools(ToolUse("bash", {"command": "true"})), text("ok")
    )
    agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[])
    environment = client.beta.environments.create(name=f"desk-{agent.id}")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    run_turn(client, session.id, "hello")
    client.beta.sessions.update(session.id, agent={"tools": [TOOLSET]}, title="with tools now")
    run_turn(client, session.id, "work")
    client.beta.sessions.archive(session.id)
    return str(session.id)


def judged_calls(stack: Stack, client: Anthropic) -> str:
    """Verdicts of every kind, a judge that is not understood, and one that fails."""
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo allowed"}),
            ToolUse("bash", {"command": "echo denied"}),
            ToolUse("bash", {"command": "echo asked"}),
        ),
        _verdicts(
            {"verdict": "allow"}, {"verdict": "deny", "reason": "high_risk"}, {"verdict": "ask"}
        ),
        tools(ToolUse("bash", {"command": "echo unclear"})),
        text("I would rather not say."),
        tools(ToolUse("bash", {"command": "echo unjudged"})),
        error(400),
        text("done"),
    )
    session = new_session(client, tools=[JUDGED])
    waits = run_turn(client, session.id, "work")
    for _ in range(3):
        (call,) = waits[-1].stop_reason.event_ids
        answer: Any = {"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}
        with client.beta.sessions.events.stream(session.id) as stream:
            client.beta.sessions.events.send(session.id, events=[answer])
            waits = [next(one for one in stream if one.type == "session.status_idle")]
    return str(session.id)


def judge_interrupted(stack: Stack, client: Anthropic) -> str:
    gate = Gate()
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo never"})),
        text("never read").stall(gate, after="content_block_start"),
        text("better"),
    )
    session = new_session(client, tools=[JUDGED])
    send(client, session.id, "work")
    gate.wait_reached()
    _interrupt(client, session.id)
    stack.until_idle(client, session.id, answers=0)
    gate.release()
    run_turn(client, session.id, "once more")
    return str(session.id)


def budget_reached(stack: Stack, client: Anthropic) -> str:
    stack.model.script(tools(ToolUse("bash", {"command": "echo dear"}), usage=CENT))
    session = new_session(client, budget=_budget(1))
    run_turn(client, session.id, "work")
    return str(session.id)


def budget_raised_and_removed(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo dear"}), usage=CENT),
        text("all of it", usage=CENT),
        text("as much as you like", usage=CENT),
    )
    session = new_session(client, budget=_budget(1))
    run_turn(client, session.id, "work")
    client.beta.sessions.update(session.id, budget=_budget(2))
    stack.until_idle(client, session.id)
    client.beta.sessions.update(session.id, budget=None)
    stack.until_idle(client, session.id)
    run_turn(client, session.id, "more")
    return str(session.id)


def system_messages(stack: Stack, client: Anthropic) -> str:
    stack.model.script(text("bonjour"), tools(ToolUse("ask_desk", {"q": "ouvert ?"})), text("oui"))
    session = new_session(client, tools=[TOOLSET, DESK])
    both: list[Any] = [_message("hello"), _system("Answer in French.")]
    client.beta.sessions.events.send(session.id, events=both)
    stack.until_idle(client, session.id)
    alone: list[Any] = [_system("The desk closes at five.")]
    client.beta.sessions.events.send(session.id, events=alone)
    waits = run_turn(client, session.id, "is the desk open?")
    _answer(client, session.id, waits[-1].stop_reason.event_ids[0], _system("It is four."))
    stack.until_idle(client, session.id)
    return str(session.id)


def pictures_and_documents(stack: Stack, client: Anthropic) -> str:
    stack.model.script(
        text("a dot, and terms"),
        tools(ToolUse("ask_desk", {"q": "a picture?"})),
        text("another dot"),
    )
    session = new_session(client, tools=[TOOLSET, DESK])
    terms = {"type": "text", "media_type": "text/plain", "data": "Pay in time."}
    shown: Any = {
        "type": "user.message",
        "content": [
            {"type": "text", "text": "what is this?"},
            DOT,
            {"type": "document", "source": terms, "title": "Terms"},
        ],
    }
    client.beta.sessions.events.send(session.id, events=[shown])
    stack.until_idle(client, session.id)
    waits = run_turn(client, session.id, "and the desk?")
    answer: Any = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": waits[-1].stop_reason.event_ids[0],
        "content": [DOT],
    }
    client.beta.sessions.events.send(session.id, events=[answer])
    stack.until_idle(client, session.id)
    return str(session.id)


def full_window(stack: Stack, client: Anthropic) -> str:
    """Summarised, looked back into, and found too long with nothing left to summarise."""
    stack.model.script(
        text("the first answer", usage=FULL),
        text("A summary of the first."),
        tools(ToolUse("session_history", {"text": "question"})),
        text("the second answer"),
        error(400, "prompt is too long: 1200000 tokens > 1000000 maximum"),
        text("the third answer"),
    )
    session = new_session(client)
    for words in ("the first question", "the second question", "the third question"):
        run_turn(client, session.id, words)
    return str(session.id)


def self_hosted_tools(stack: Stack, client: Anthropic) -> str:
    """Answers of workers beside a client's, behind a person's word, and none but an interrupt."""
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "ls"}),
            ToolUse("ask_desk", {"q": "open?"}),
            ToolUse("read", {"file_path": "note"}),
        ),
        tools(
            ToolUse("write", {"file_path": "a", "content": "allowed"}),
            ToolUse("write", {"file_path": "b", "content": "denied"}),
        ),
        tools(ToolUse("bash", {"command": "sleep 600"})),
        text("something else, then"),
    )
    asking: Any = {"name": "write", "permission_policy": {"type": "always_ask"}}
    toolset = {**TOOLSET, "configs": [asking]}
    session = new_session(client, tools=[toolset, DESK], self_hosted=True)
    waits = run_turn(client, session.id, "work")
    ls, desk, read = waits[-1].stop_reason.event_ids
    # Together, as in `confirmations`.
    wrote = _after(
        client, session.id, _worked(read, "a note", is_error=True), _answered(desk), _worked(ls)
    )
    allowed, denied = wrote.stop_reason.event_ids
    waits_on = _after(client, session.id, _verdict(allowed, "allow"), _verdict(denied, "deny"))
    (still,) = waits_on.stop_reason.event_ids
    _after(client, session.id, _worked(still), _system("Be quick."))
    _after(client, session.id, {"type": "user.interrupt"})
    run_turn(client, session.id, "something else")
    # At its end it can be imported without its environment.
    client.beta.sessions.archive(session.id)
    return str(session.id)


ALL: Final[tuple[Scenario, ...]] = (
    plain_turns,
    queued_messages,
    tool_turns,
    parallel_tools,
    interrupted_model,
    interrupted_tools,
    confirmations,
    custom_tools,
    model_errors,
    odd_endings,
    brain_killed_in_a_model_request,
    brain_killed_in_a_tool_call,
    updated_and_archived,
    judged_calls,
    judge_interrupted,
    budget_reached,
    budget_raised_and_removed,
    system_messages,
    pictures_and_documents,
    full_window,
    self_hosted_tools,
)


def _message(words: str) -> dict[str, Any]:
    return {"type": "user.message", "content": [{"type": "text", "text": words}]}


def _system(words: str) -> dict[str, Any]:
    return {"type": "system.message", "content": [{"type": "text", "text": words}]}


def _budget(cents: int) -> dict[str, Any]:
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


def _verdicts(*given: dict[str, str]) -> Reply:
    told = [{"call": number, **verdict} for number, verdict in enumerate(given, 1)]
    return text(json.dumps({"verdicts": told}))


def _interrupt(client: Anthropic, session_id: str) -> None:
    client.beta.sessions.events.send(session_id, events=[{"type": "user.interrupt"}])


def _answer(client: Anthropic, session_id: str, call: str, *behind: dict[str, Any]) -> None:
    answers: Any = [_answered(call), *behind]
    client.beta.sessions.events.send(session_id, events=answers)


def _answered(call: str) -> dict[str, Any]:
    content = [{"type": "text", "text": "yes"}]
    return {"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": content}


def _worked(call: str, words: str = "done", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": words}]
    return {"type": "user.tool_result", "tool_use_id": call, "content": content, **more}


def _verdict(call: str, result: str) -> dict[str, Any]:
    return {"type": "user.tool_confirmation", "tool_use_id": call, "result": result}


def _after(client: Anthropic, session_id: str, *events: Any) -> Any:
    """Sends events; answers the idle event that follows."""
    with client.beta.sessions.events.stream(session_id) as stream:
        client.beta.sessions.events.send(session_id, events=list(events))
        return next(event for event in stream if event.type == "session.status_idle")


def _kill_brains(stack: Stack) -> None:
    for brain in ("brain-1", "brain-2"):
        stack.kill(brain)
