"""The main job, by the official SDK against real processes and a scripted model."""

from __future__ import annotations

from anthropic import AsyncAnthropic

from tests.doubles.messages_api import ToolUse, Usage, text, tools
from tests.e2e.driving import (
    MODEL,
    TOOLSET,
    history,
    new_session,
    run_turn,
    send,
    stamped,
    texts,
    user_message,
)
from tests.e2e.stack import Stack

TURN = [
    "user.message",
    "session.status_running",
    "session.thread_status_running",
    "span.model_request_start",
    "agent.message",
    "span.model_request_end",
    "session.thread_status_idle",
    "session.usage",
    "session.status_idle",
]


def test_turn_without_tools_has_the_contracts_events_in_order(stack: Stack) -> None:
    stack.model.script(text("hello there", usage=Usage(input_tokens=12, output_tokens=7)))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        seen = stamped(run_turn(client, session.id, "hello"))
        assert [event.type for event in seen] == TURN
        assert [event.type for event in history(client, session.id)] == TURN
        end = next(event for event in seen if event.type == "span.model_request_end")
        assert (end.model_usage.input_tokens, end.model_usage.output_tokens) == (12, 7)
        after = client.beta.sessions.retrieve(session.id)
        assert after.status == "idle"
        assert (after.usage.input_tokens, after.usage.output_tokens) == (12, 7)


def test_two_tools_of_one_answer_both_run_and_their_results_reach_the_model(stack: Stack) -> None:
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo from-$((40 + 2))"}),
            ToolUse("write", {"file_path": "/workspace/note.txt", "content": "kept"}),
        ),
        tools(ToolUse("read", {"file_path": "/workspace/note.txt"})),
        text("done"),
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        seen = stamped(run_turn(client, session.id, "work"))
    uses = [event for event in seen if event.type == "agent.tool_use"]
    results = {event.tool_use_id: event for event in seen if event.type == "agent.tool_result"}
    assert [use.name for use in uses] == ["bash", "write", "read"]
    assert all(use.evaluated_permission == "allow" for use in uses)
    assert set(results) == {use.id for use in uses}
    assert "from-42" in results[uses[0].id].content[0].text
    assert "kept" in results[uses[2].id].content[0].text
    assert not any(result.is_error for result in results.values())
    first, second, third = stack.model.requests[-3:]
    sent = second.body["messages"][len(first.body["messages"]) + 1]["content"]
    assert [block["type"] for block in sent] == ["tool_result", "tool_result"]
    # A replayed prefix is the same to the letter: that is what prompt caching needs.
    earlier = [
        {k: v for k, v in m.items() if k != "cache_control"} for m in second.body["messages"]
    ]
    assert [m["role"] for m in third.body["messages"]][: len(earlier)] == [
        m["role"] for m in earlier
    ]


def test_two_messages_sent_at_once_are_processed_one_after_the_other(stack: Stack) -> None:
    stack.model.script(text("to the first"), text("to the second"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        run_turn(client, session.id, "first", "second")
        log = history(client, session.id)
    order = [event.type for event in log if event.type in {"user.message", "agent.message"}]
    assert order == ["user.message", "agent.message"] * 2
    assert texts(log, "user.message") == ["first", "second"]
    assert texts(log, "agent.message") == ["to the first", "to the second"]


def test_initial_events_create_a_session_that_runs(stack: Stack) -> None:
    stack.model.script(text("at once"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, initial_events=[user_message("go")])
        assert session.status == "running"
        log = stack.until_idle(client, session.id)
    assert texts(log, "agent.message") == ["at once"]


def test_session_keeps_its_shell_and_its_files_between_turns(stack: Stack) -> None:
    stack.model.script(
        tools(ToolUse("bash", {"command": "cd /tmp && export COLOUR=blue && echo x > there"})),
        text("set"),
        tools(ToolUse("bash", {"command": "pwd; echo $COLOUR; cat there"})),
        text("read"),
    )
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "set")
        seen = stamped(run_turn(client, session.id, "read"))
    result = next(event for event in seen if event.type == "agent.tool_result")
    assert result.content[0].text.split() == ["/tmp", "blue", "x"]  # noqa: S108 - the sandbox's own


def test_session_that_uses_no_tool_starts_no_sandbox(stack: Stack) -> None:
    stack.model.script(text("no tools needed"))
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "hello")
    assert session.id not in stack.sandboxes()


def test_custom_tool_waits_for_its_result_and_goes_on(stack: Stack) -> None:
    tool = {
        "type": "custom",
        "name": "ask_desk",
        "description": "Asks the desk.",
        "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
    }
    stack.model.script(tools(ToolUse("ask_desk", {"q": "open?"})), text("the desk is open"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[tool])
        seen = run_turn(client, session.id, "ask")
        use = next(event for event in seen if event.type == "agent.custom_tool_use")
        assert seen[-1].stop_reason.type == "requires_action"
        assert seen[-1].stop_reason.event_ids == [use.id]
        with client.beta.sessions.events.stream(session.id) as stream:
            client.beta.sessions.events.send(
                session.id,
                events=[
                    {
                        "type": "user.custom_tool_result",
                        "custom_tool_use_id": use.id,
                        "content": [{"type": "text", "text": "yes"}],
                    }
                ],
            )
            for event in stream:
                if event.type == "session.status_idle":
                    assert event.stop_reason.type == "end_turn"
                    break
        assert texts(history(client, session.id), "agent.message") == ["the desk is open"]


def test_call_that_must_be_asked_runs_once_it_is_allowed(stack: Stack) -> None:
    asking = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "echo one"}),
            ToolUse("bash", {"command": "echo two"}),
        ),
        text("done"),
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[asking])
        seen = run_turn(client, session.id, "work")
        uses = [event for event in seen if event.type == "agent.tool_use"]
        assert [use.evaluated_permission for use in uses] == ["ask", "ask"]
        assert sorted(seen[-1].stop_reason.event_ids) == sorted(use.id for use in uses)
        with client.beta.sessions.events.stream(session.id) as stream:
            client.beta.sessions.events.send(
                session.id,
                events=[
                    {
                        "type": "user.tool_confirmation",
                        "tool_use_id": uses[0].id,
                        "result": "allow",
                    },
                    {
                        "type": "user.tool_confirmation",
                        "tool_use_id": uses[1].id,
                        "result": "deny",
                        "deny_message": "not that one",
                    },
                ],
            )
            for event in stream:
                if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                    break
        log = history(client, session.id)
    results = {event.tool_use_id: event for event in log if event.type == "agent.tool_result"}
    assert "one" in results[uses[0].id].content[0].text
    assert results[uses[1].id].is_error
    assert "not that one" in results[uses[1].id].content[0].text


def test_interrupt_stops_a_running_command_and_ends_the_turn(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("bash", {"command": "echo started; sleep 600"})))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        with client.beta.sessions.events.stream(session.id) as stream:
            send(client, session.id, "work")
            seen = []
            for event in stream:
                seen.append(event)
                if event.type == "agent.tool_use":
                    client.beta.sessions.events.send(
                        session.id, events=[{"type": "user.interrupt"}]
                    )
                if event.type == "session.status_idle":
                    break
        assert seen[-1].stop_reason.type == "end_turn"
        result = next(event for event in seen if event.type == "agent.tool_result")
        assert result.is_error
        assert "interrupted before completion" in result.content[0].text
        assert client.beta.sessions.archive(session.id).status == "terminated"


def test_model_that_calls_nonsense_gets_error_results_and_the_turn_goes_on(stack: Stack) -> None:
    stack.model.script(
        tools(
            ToolUse("no_such_tool", {}),
            ToolUse("bash", '{"command": "echo'),
            ToolUse("bash", {"command": 7}),
        ),
        text("recovered"),
    )
    with stack.client() as client:
        session = new_session(client)
        seen = stamped(run_turn(client, session.id, "work"))
    results = [event for event in seen if event.type == "agent.tool_result"]
    assert len(results) == 3
    assert all(result.is_error for result in results)
    assert texts(seen, "agent.message") == ["recovered"]


async def test_async_client_drives_the_same_path(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("bash", {"command": "echo async"})), text("done"))
    client: AsyncAnthropic
    async with stack.async_client(_strict_response_validation=True) as client:
        agent = await client.beta.agents.create(name="clerk", model=MODEL, tools=[TOOLSET])
        environment = await client.beta.environments.create(name=f"desk-{agent.id}")
        session = await client.beta.sessions.create(
            agent={"type": "agent", "id": agent.id, "version": 1}, environment_id=environment.id
        )
        seen = []
        async with await client.beta.sessions.events.stream(session.id) as stream:
            await client.beta.sessions.events.send(session.id, events=[user_message("go")])
            async for event in stream:
                seen.append(event)
                if event.type == "session.status_idle":
                    break
        listed = [event.id async for event in client.beta.sessions.events.list(session.id)]
    assert listed == [event.id for event in stamped(seen)]
    assert texts(seen, "agent.message") == ["done"]


def test_previews_are_a_prefix_of_the_message_that_follows(stack: Stack) -> None:
    stack.model.script(text("a rather long answer in several pieces", pieces=6))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        with client.beta.sessions.events.stream(
            session.id, event_deltas=["agent.message"]
        ) as stream:
            send(client, session.id, "hello")
            seen = []
            for event in stream:
                seen.append(event)
                if event.type == "session.status_idle":
                    break
    start = next(event for event in seen if event.type == "event_start")
    final = next(event for event in seen if event.type == "agent.message")
    joined = "".join(event.delta.content.text for event in seen if event.type == "event_delta")
    assert start.event.id == final.id
    assert joined
    assert final.content[0].text.startswith(joined)


def test_client_that_sends_and_asks_until_idle_finds_the_turn_done(stack: Stack) -> None:
    """Without a stream: `idle` never means "not begun yet", and then the usage is final."""
    stack.model.script(*(text("done") for _ in range(5)))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        for turn in range(1, 6):
            send(client, session.id, "go")
            stack.wait_for(
                lambda: client.beta.sessions.retrieve(session.id).status == "idle", "idleness"
            )
            log = history(client, session.id)
            assert len(texts(log, "agent.message")) == turn
            after = client.beta.sessions.retrieve(session.id)
            assert log[-2].usage.to_dict() == after.usage.to_dict()


def test_denial_shows_once_the_session_runs_again(stack: Stack) -> None:
    asking = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}
    stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("as you wish"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[asking])
        paused = run_turn(client, session.id, "go")
        [call] = paused[-1].stop_reason.event_ids
        answer = {"type": "user.tool_confirmation", "tool_use_id": call, "result": "deny"}
        client.beta.sessions.events.send(session.id, events=[answer])
        log = stack.until_idle(client, session.id)
    kinds = [event.type for event in log]
    at = kinds.index("user.tool_confirmation")
    assert kinds[at + 1 : at + 4] == [
        "session.status_running",
        "session.thread_status_running",
        "agent.tool_result",
    ]
