"""Bad input gets the contract's status, a message naming the path, and changes nothing."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from anthropic import BadRequestError, ConflictError, NotFoundError

from tests.doubles.messages_api import text
from tests.e2e.driving import MODEL, TOOLSET, history, new_session, run_turn, send, user_message
from tests.e2e.stack import Stack


def post(stack: Stack, path: str, content: bytes | Any, **headers: str) -> httpx2.Response:
    """Sends a raw or a JSON body with the right key."""
    body = {"content": content} if isinstance(content, bytes) else {"json": content}
    known = {"content-type": "application/json", **stack.headers, **headers}
    return httpx2.post(stack.url + path, headers=known, timeout=30, **body)


AGENT = {"name": "clerk", "model": MODEL}

BAD_AGENTS = [
    pytest.param({**AGENT, "colour": "red"}, "colour", id="unknown field"),
    pytest.param({**AGENT, "name": 7}, "name", id="wrong type"),
    pytest.param({**AGENT, "name": "x" * 257}, "name", id="too long"),
    pytest.param({"name": "clerk"}, "model", id="missing"),
    pytest.param({**AGENT, "tools": [{"type": "nonsense"}]}, "tools.0", id="unknown variant"),
    pytest.param({**AGENT, "tools": [{"name": "x"}]}, "tools.0", id="no type"),
    pytest.param(
        {**AGENT, "multiagent": {"type": "multiagent_20261001"}}, "multiagent", id="not running yet"
    ),
    pytest.param(
        {**AGENT, "skills": [{"type": "anthropic", "skill_id": "xlsx"}]}, "skills", id="no skills"
    ),
    pytest.param({**AGENT, "metadata": {"k": 1}}, "metadata", id="metadata of another type"),
]


@pytest.mark.parametrize(("body", "path"), BAD_AGENTS)
def test_bad_agent_is_refused_by_name_of_the_field(
    stack: Stack, body: dict[str, Any], path: str
) -> None:
    answer = post(stack, "/v1/agents", body)
    error = answer.json()
    assert answer.status_code == 400
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert path in error["error"]["message"]
    assert error["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"name": NaN}',
        b"\xff\xfe",
        b"[]",
        b'"text"',
        b'{"name":"a","name":"b"}',
        b"[" * 5000,
    ],
)
def test_malformed_json_is_refused(stack: Stack, body: bytes) -> None:
    answer = post(stack, "/v1/agents", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_body_over_the_limit_is_refused_with_413(stack: Stack) -> None:
    answer = post(stack, "/v1/agents", b'{"name":"' + b"x" * (33 << 20) + b'"}')
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "request_too_large"


def test_mixed_batch_with_one_bad_event_stores_none_of_it(stack: Stack) -> None:
    with stack.client() as client:
        session = new_session(client)
        for bad in (
            {"type": "user.message", "content": []},
            {"type": "user.message", "content": [{"type": "redacted"}]},
            {"type": "user.tool_confirmation", "tool_use_id": "sevt_unknown", "result": "allow"},
            {"type": "agent.message", "content": [{"type": "text", "text": "forged"}]},
            {
                "type": "user.define_outcome",
                "description": "x",
                "rubric": {"type": "text", "content": "y"},
            },
        ):
            answer = post(
                stack, f"/v1/sessions/{session.id}/events", {"events": [user_message("good"), bad]}
            )
            assert answer.status_code == 400, bad
            assert "events.1" in answer.json()["error"]["message"], bad
        assert history(client, session.id) == []
        assert client.beta.sessions.retrieve(session.id).status == "idle"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/agents/agent_unknown",
        "/v1/environments/env_unknown",
        "/v1/sessions/sesn_unknown",
        "/v1/sessions/sesn_unknown/events",
        "/v1/sessions/sesn_unknown/events/stream",
        "/v1/sessions/sesn_unknown/threads",
        "/v1/nothing",
    ],
)
def test_unknown_id_is_404_in_the_envelope(stack: Stack, path: str) -> None:
    answer = httpx2.get(stack.url + path, headers=stack.headers, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"
    assert answer.headers["request-id"].startswith("req_")


def test_unknown_environment_carries_its_error_code(stack: Stack) -> None:
    with stack.client() as client, pytest.raises(NotFoundError) as refused:
        client.beta.environments.retrieve("env_unknown")
    assert refused.value.body["error"]["details"]["error_code"] == "environment_not_found"


def test_foreign_cursor_is_refused(stack: Stack) -> None:
    stack.model.script(text("ok"))
    with stack.client() as client:
        one, other = new_session(client), new_session(client)
        run_turn(client, one.id, "go")
        page = client.beta.sessions.events.list(one.id, limit=2)
        assert page.next_page
        for refused in (
            lambda: client.beta.sessions.events.list(other.id, page=page.next_page),
            lambda: client.beta.sessions.events.list(one.id, page=page.next_page, order="desc"),
            lambda: client.beta.sessions.events.list(one.id, page="garbage"),
            lambda: client.beta.agents.list(page=page.next_page),
        ):
            with pytest.raises(BadRequestError):
                refused()


def test_archived_agent_starts_no_session_and_running_ones_go_on(stack: Stack) -> None:
    stack.model.script(text("still here"))
    with stack.client() as client:
        session = new_session(client)
        client.beta.agents.archive(session.agent.id)
        with pytest.raises(BadRequestError):
            client.beta.sessions.create(
                agent=session.agent.id, environment_id=session.environment_id
            )
        assert run_turn(client, session.id, "go")[-1].stop_reason.type == "end_turn"


def test_stale_version_is_a_conflict_that_clients_do_not_retry(stack: Stack) -> None:
    with stack.client() as client:
        agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[TOOLSET])
        client.beta.agents.update(agent.id, name="clerk two", version=1)
        with pytest.raises(ConflictError) as refused:
            client.beta.agents.update(agent.id, name="clerk three", version=1)
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert client.beta.agents.retrieve(agent.id).name == "clerk two"
        assert client.beta.agents.retrieve(agent.id, version=1).name == "clerk"


def test_archived_session_takes_nothing_and_stays_readable(stack: Stack) -> None:
    stack.model.script(text("ok"))
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "go")
        client.beta.sessions.archive(session.id)
        with pytest.raises(BadRequestError):
            send(client, session.id, "more")
        assert history(client, session.id)[-1].type == "session.status_terminated"


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"x-api-key": "wrong"}, 401, "authentication_error"),
        ({"x-api-key": ""}, 401, "authentication_error"),
        ({"anthropic-beta": ""}, 404, "not_found_error"),
        ({"anthropic-beta": "no-such-beta-2020-01-01"}, 400, "invalid_request_error"),
    ],
)
def test_headers_are_judged_before_anything_else(
    stack: Stack, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = httpx2.get(f"{stack.url}/v1/agents", headers={**stack.headers, **headers}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
    assert answer.headers["request-id"]


def test_key_is_taken_as_bearer_too(stack: Stack) -> None:
    headers = {
        "authorization": f"Bearer {stack.key}",
        "anthropic-beta": stack.headers["anthropic-beta"],
    }
    assert (
        httpx2.get(f"{stack.url}/v1/agents?beta=true", headers=headers, timeout=60).status_code
        == 200
    )


def test_unknown_query_parameter_is_refused(stack: Stack) -> None:
    answer = httpx2.get(f"{stack.url}/v1/agents?colour=red", headers=stack.headers, timeout=60)
    assert answer.status_code == 400
    assert "colour" in answer.json()["error"]["message"]
