"""Every event exactly once, whatever the connection does (EVENTS §8, promise P5)."""

from __future__ import annotations

import httpx2
import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn, send, stamped
from tests.e2e.stack import Stack


def frames(stack: Stack, path: str, **headers: str) -> list[tuple[str, str]]:
    """Reads a stream up to its first idle event; answers (event, id) pairs."""
    seen: list[tuple[str, str]] = []
    kind = identity = ""
    with httpx2.stream(
        "GET", stack.url + path, headers={**stack.headers, **headers}, timeout=30
    ) as r:
        assert r.status_code == 200, r.read()
        for line in r.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("id: "):
                identity = line[4:]
            elif not line and kind:
                seen.append((kind, identity))
                if kind == "session.status_idle":
                    break
                kind = identity = ""
    return seen


def test_subscribe_then_list_gives_every_event_exactly_once(stack: Stack) -> None:
    for _ in range(3):
        stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("ok"))
    with stack.client() as client:
        session = new_session(client)
        send(client, session.id, "one")
        # Opened in the middle of a turn, like a client that comes late.
        with client.beta.sessions.events.stream(session.id) as stream:
            merged = {event.id: event for event in history(client, session.id, limit=3)}
            send(client, session.id, "two", "three")
            stack.model.wait_requests(len(stack.model.requests))
            idle = 0
            for event in stream:
                if event.type.startswith("event_"):
                    continue
                merged[event.id] = event
                idle += event.type == "session.status_idle"
                answered = sum(e.type == "agent.message" for e in merged.values())
                if event.type == "session.status_idle" and answered == 3:
                    break
        log = history(client, session.id)
    assert {event.id for event in log} == set(merged)
    assert len({event.id for event in log}) == len(log)
    assert all(event.processed_at is not None for event in log)
    assert [e.processed_at for e in log] == sorted(e.processed_at for e in log)


def test_cut_stream_resumed_by_last_event_id_misses_nothing(stack: Stack) -> None:
    stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("ok"))
    with stack.client() as client:
        session = new_session(client)
        log = [(e.type, e.id) for e in stamped(run_turn(client, session.id, "go"))]
    for path in (f"/v1/sessions/{session.id}/events/stream", f"/v1/sessions/{session.id}/stream"):
        for cut in range(len(log) - 1):
            resumed = frames(stack, path, **{"Last-Event-ID": log[cut][1]})
            assert resumed == log[cut + 1 :]
    resumed = frames(stack, f"/v1/sessions/{session.id}/stream?after={log[0][1]}")
    assert resumed == log[1:]


@pytest.mark.parametrize("where", ["header", "query"])
def test_unknown_position_is_refused_before_the_stream_begins(stack: Stack, where: str) -> None:
    with stack.client() as client:
        session = new_session(client)
    url = f"{stack.url}/v1/sessions/{session.id}/events/stream"
    headers = dict(stack.headers)
    if where == "header":
        headers["Last-Event-ID"] = "sevt_unknown"
    else:
        url += "?after=sevt_unknown"
    answer = httpx2.get(url, headers=headers, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_thread_stream_gives_the_primary_threads_events(stack: Stack) -> None:
    stack.model.script(text("ok"))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        thread = next(iter(client.beta.sessions.threads.list(session.id)))
        assert thread.parent_thread_id is None
        with client.beta.sessions.threads.events.stream(thread.id, session_id=session.id) as stream:
            send(client, session.id, "go")
            seen = []
            for event in stream:
                seen.append(event)
                if event.type == "session.thread_status_idle":
                    break
        listed = list(client.beta.sessions.threads.events.list(thread.id, session_id=session.id))
    assert "agent.message" in [event.type for event in seen]
    assert [event.type for event in listed if event.type == "agent.message"] == ["agent.message"]


def test_stream_ends_when_the_session_is_deleted(stack: Stack) -> None:
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        with client.beta.sessions.events.stream(session.id) as stream:
            client.beta.sessions.delete(session.id)
            assert [event.type for event in stream] == ["session.deleted"]


def test_pages_of_either_order_hold_every_event_once(stack: Stack) -> None:
    stack.model.script(text("ok"))
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "go")
        forward = [event.id for event in history(client, session.id, limit=2)]
        backward = [event.id for event in history(client, session.id, limit=2, order="desc")]
        only = history(client, session.id, types=["agent.message", "session.usage"])
    assert forward == list(reversed(backward))
    assert len(set(forward)) == len(forward)
    assert [event.type for event in only] == ["agent.message", "session.usage"]
