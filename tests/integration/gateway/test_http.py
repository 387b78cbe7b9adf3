"""What every request meets on its way, whatever its route."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from tests.integration.gateway.conftest import BETA, KEY, Gateway


def envelope(response: Any) -> tuple[int, str, str]:
    body = response.json()
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"]
    assert response.headers["request-id"].startswith("req_01")
    return response.status_code, body["error"]["type"], body["error"]["message"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "kind"),
    [
        ("GET", "/", 404, "not_found_error"),
        ("GET", "/v1/models", 404, "not_found_error"),
        ("GET", "/v1/agents/", 404, "not_found_error"),
        ("GET", "/v1/agents/%FF", 404, "not_found_error"),
        ("PUT", "/v1/agents", 405, "invalid_request_error"),
        ("DELETE", "/v1/agents/agent_1", 405, "invalid_request_error"),
        ("OPTIONS", "/v1/agents", 405, "invalid_request_error"),
        ("POST", "/healthz", 405, "invalid_request_error"),
        ("PATCH", "/v1/agents", 405, "invalid_request_error"),
        ("GET", "/v1/agents?x=1", 400, "invalid_request_error"),
        ("GET", "/v1/agents?limit=0", 400, "invalid_request_error"),
    ],
)
async def test_every_refusal_is_the_envelope_with_the_requests_id(
    gateway: Gateway, verb: str, path: str, status: int, kind: str
) -> None:
    response = await gateway.http.request(verb, path)
    assert envelope(response)[:2] == (status, kind)


async def test_the_wrong_verb_is_told_the_right_ones(gateway: Gateway) -> None:
    response = await gateway.http.put("/v1/agents/agent_1")
    assert response.headers["allow"] == "GET, HEAD, POST"


async def test_every_answer_has_its_own_id(gateway: Gateway) -> None:
    answers = [await gateway.http.get("/v1/agents/a") for _ in range(3)]
    assert len({answer.headers["request-id"] for answer in answers}) == 3
    asked = await gateway.http.get("/v1/agents/a", headers={"request-id": "mine"})
    assert asked.headers["request-id"] != "mine"


async def test_without_a_key_nothing_of_the_api_answers(gateway: Gateway) -> None:
    for headers in ({"x-api-key": ""}, {"x-api-key": "nope"}, {"x-api-key": KEY[:-1]}):
        response = await gateway.http.get("/v1/agents", headers=headers)
        assert envelope(response)[:2] == (401, "authentication_error")
    response = await gateway.http.get(
        "/v1/agents", headers={"x-api-key": "", "authorization": f"Bearer {KEY}"}
    )
    assert response.status_code == 200
    assert gateway.platform.agents.requests[1:] == []


async def test_beta_names_decide_over_managed_agents_routes(gateway: Gateway) -> None:
    missing = await gateway.http.get("/v1/agents", headers={"anthropic-beta": ""})
    assert envelope(missing)[:2] == (404, "not_found_error")
    assert "anthropic-beta: managed-agents-2026-04-01" in envelope(missing)[2]
    unknown = await gateway.http.get(
        "/v1/agents", headers={"anthropic-beta": f"{BETA['anthropic-beta']},nope-2026-01-01"}
    )
    assert envelope(unknown)[:2] == (400, "invalid_request_error")
    for version in ("2023-06-01", "2026-10-21"):
        known = await gateway.http.get("/v1/agents", headers={"anthropic-version": version})
        assert known.status_code == 200


async def test_a_workspace_that_is_not_the_keys_is_refused(gateway: Gateway) -> None:
    own = await gateway.http.get("/v1/agents", headers={"anthropic-workspace-id": "wrkspc_default"})
    assert own.status_code == 200
    assert own.headers["anthropic-workspace-id"] == "wrkspc_default"
    other = await gateway.http.get("/v1/agents", headers={"anthropic-workspace-id": "wrkspc_x"})
    assert envelope(other)[:2] == (403, "permission_error")


@pytest.mark.parametrize("path", ["/v1/agents", "/openapi.json", "/docs", "/metrics", "/nowhere"])
async def test_a_page_of_another_name_cannot_reach_this_server(gateway: Gateway, path: str) -> None:
    headers = {"host": "evil.example", "x-forwarded-host": "localhost"}
    response = await gateway.http.get(path, headers=headers)
    if path == "/nowhere":
        assert response.status_code in {403, 404}
    else:
        assert envelope(response)[:2] == (403, "permission_error")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b"[1]",
        b'"x"',
        b"[" * 99_999,
    ],
)
async def test_what_is_no_good_json_is_refused_unread(gateway: Gateway, body: bytes) -> None:
    response = await gateway.http.post("/v1/agents", content=body)
    assert envelope(response)[:2] == (400, "invalid_request_error")
    assert gateway.platform.agents.requests == []


async def test_a_batch_with_one_bad_event_reaches_no_service(gateway: Gateway) -> None:
    good = {"type": "user.message", "content": [{"type": "text", "text": "x"}]}
    bad = {"type": "user.message", "content": [{"type": "text", "text": 5}]}
    response = await gateway.http.post("/v1/sessions/s/events", json={"events": [good, bad]})
    assert envelope(response)[2] == "events.1.content.0.text: must be a string"
    assert gateway.platform.sessions.requests == []


class TestBodies:
    @pytest.fixture
    def gateway_settings(self) -> dict[str, Any]:
        return {"max_body_bytes": 1_000_000}

    async def test_a_declared_length_over_the_limit_is_refused(self, gateway: Gateway) -> None:
        response = await gateway.http.post("/v1/agents", content=b" " * 1_000_001)
        assert envelope(response)[:2] == (413, "request_too_large")
        assert (await gateway.http.get("/v1/agents")).status_code == 200

    async def test_an_undeclared_length_is_refused_once_it_is_over(self, gateway: Gateway) -> None:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(64):
                sent += 65_536
                yield b" " * 65_536

        response = await gateway.http.post("/v1/agents", content=endless())
        assert envelope(response)[:2] == (413, "request_too_large")

    async def test_an_encoded_body_is_refused_by_the_name_of_its_header(
        self, gateway: Gateway
    ) -> None:
        packed = gzip.compress(b'{"model":"m","name":"n"}')
        headers = {"content-encoding": "gzip"}
        response = await gateway.http.post("/v1/agents", content=packed, headers=headers)
        status, kind, message = envelope(response)[:3]
        assert (status, kind) == (400, "invalid_request_error")
        assert message.startswith("content-encoding: ")

    async def test_exactly_the_limit_is_taken(self, gateway: Gateway) -> None:
        body = b'{"model":"m","name":"n"}'.ljust(1_000_000)
        assert (await gateway.http.post("/v1/agents", content=body)).status_code == 200


async def test_a_post_without_a_body_is_not_parsed(gateway: Gateway) -> None:
    headers = {"content-type": "application/json"}
    response = await gateway.http.post("/v1/agents/agent_7/archive", headers=headers)
    assert response.status_code == 200
    assert response.json()["id"] == "agent_7"


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/agents/agent_7", "/healthz", "/nowhere"])
async def test_a_head_is_answered_as_the_get_without_its_body(gateway: Gateway, path: str) -> None:
    head, get = await gateway.http.head(path), await gateway.http.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == get.headers[name]


async def test_a_head_is_refused_where_there_is_no_get(gateway: Gateway) -> None:
    answer = await gateway.http.head("/v1/agents/agent_7/archive")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = await gateway.http.delete("/v1/agents/agent_7")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_an_id_arrives_as_it_was_written(gateway: Gateway) -> None:
    await gateway.http.get("/v1/agents/a%2Fb%20%C3%A9")
    assert gateway.platform.agents.last.agent_id == "a/b é"


async def test_a_service_that_is_down_is_a_retryable_503(gateway: Gateway) -> None:
    await gateway.platform.stop("registry")
    response = await gateway.http.get("/v1/agents")
    assert envelope(response)[:2] == (503, "overloaded_error")
    assert response.json()["error"]["message"] == "the registry service is not available"
    assert response.headers["retry-after"] == "1"
    assert "x-should-retry" not in response.headers
    assert "127.0.0.1" not in response.text
    await gateway.platform.start("registry")
    async with asyncio.timeout(30):
        while (await gateway.http.get("/v1/agents")).status_code != 200:
            pass


async def test_what_breaks_inside_shows_an_error_id_only(gateway: Gateway) -> None:
    gateway.platform.agents.failure = RuntimeError("the password is hunter2")
    response = await gateway.http.get("/v1/agents")
    status, kind, message = envelope(response)
    assert (status, kind) == (500, "api_error")
    assert message.startswith("internal error err_01")
    assert "hunter2" not in response.text


async def test_typed_errors_keep_their_code(gateway: Gateway) -> None:
    gateway.platform.environments.failure = DroverError(Reason.ENVIRONMENT_NOT_FOUND, "no")
    response = await gateway.http.get("/v1/environments/env_1")
    assert envelope(response)[:2] == (404, "not_found_error")
    assert response.json()["error"]["details"] == {"error_code": "environment_not_found"}


async def test_a_second_host_header_does_not_hide_behind_the_first(gateway: Gateway) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    hosts = b"host: localhost\r\nhost: evil.example\r\n"
    writer.write(b"GET /docs HTTP/1.1\r\n" + hosts + b"connection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("text", [b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nx: \x00\r\n\r\n"])
async def test_what_is_no_http_gets_the_envelope_too(gateway: Gateway, text: bytes) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nrequest-id: req_01" in answer
    assert b'"type":"invalid_request_error"' in answer
