"""Previews, folded by the official SDK's own helper (EVENTS §3.5)."""

from __future__ import annotations

from itertools import pairwise

from anthropic.lib.sessions import AccumulatedEvent, accumulate_managed_agents_event

from tests.doubles.messages_api import Gate, ToolUse, text, thinking, tools
from tests.e2e.driving import new_session, send, user_message
from tests.e2e.stack import Stack

LONG = "a rather long answer \u2014 with \U0001f40e in it, in many pieces; " * 5


def test_fold_of_every_connection_ends_in_the_messages_of_the_log(stack: Stack) -> None:
    stack.model.script(
        tools(ToolUse("bash", {"command": "true"}), say="Let me see."), thinking("hm", LONG)
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        folded: AccumulatedEvent | None = None
        snapshots: dict[str, list[str]] = {}
        finals: dict[str, str] = {}
        with client.beta.sessions.events.stream(
            session.id, event_deltas=["agent.message", "agent.thinking"]
        ) as stream:
            send(client, session.id, "hello")
            for event in stream:
                folded = accumulate_managed_agents_event(folded, event)
                if event.type == "event_delta" and folded is not None:
                    assert folded.id == event.event_id
                    snapshots.setdefault(folded.id, []).append(_text(folded))
                if event.type == "agent.message":
                    assert folded == event
                    finals[event.id] = _text(event)
                if event.type == "session.status_idle":
                    break
    assert list(finals.values()) == ["Let me see.", LONG]
    for event_id, final in finals.items():
        grown = snapshots[event_id]
        assert all(later.startswith(earlier) for earlier, later in pairwise(grown))
        assert all(final.startswith(snapshot) for snapshot in grown)


def test_request_that_is_cut_off_leaves_a_preview_without_a_message(stack: Stack) -> None:
    gate = Gate()
    stack.model.script(
        text(LONG, pieces=8).stall(gate, after="content_block_delta"), text("better")
    )
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        previewed: set[str] = set()
        finals: set[str] = set()
        ended = False
        with client.beta.sessions.events.stream(
            session.id, event_deltas=["agent.message"]
        ) as stream:
            send(client, session.id, "hello")
            for event in stream:
                if event.type == "event_start":
                    previewed.add(event.event.id)
                if event.type == "event_delta" and not ended:
                    ended = True
                    again = user_message("shorter")
                    client.beta.sessions.events.send(
                        session.id, events=[{"type": "user.interrupt"}, again]
                    )
                if event.type == "agent.message":
                    finals.add(event.id)
                if event.type == "session.status_idle" and finals:
                    break
        gate.release()
    assert len(previewed) == 2
    assert len(finals) == 1
    assert finals < previewed


def _text(message: AccumulatedEvent) -> str:
    return "".join(block.text for block in message.content if block.type == "text")
