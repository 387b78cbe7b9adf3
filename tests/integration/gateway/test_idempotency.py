"""What the gateway tells the services of repeated requests, and clients of repeated answers."""

from __future__ import annotations

import orjson
import pytest

from tests.integration.gateway.conftest import Gateway

SESSION = {"agent": "agent_1", "environment_id": "env_1"}


def keyed(name: str = "k") -> dict[str, str]:
    return {"idempotency-key": name}


async def test_a_key_reaches_the_service_and_a_replay_is_told(gateway: Gateway) -> None:
    asked = gateway.platform.sessions
    first = await gateway.http.post("/v1/sessions", json=SESSION, headers=keyed())
    assert "idempotent-replayed" not in first.headers
    asked.replays = True
    again = await gateway.http.post("/v1/sessions", json=SESSION, headers=keyed())
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    one, two = asked.keys
    assert one is not None
    assert two is not None
    assert one.id == two.id
    assert one.fingerprint == two.fingerprint


async def test_a_counted_request_reaches_the_service_with_its_count(gateway: Gateway) -> None:
    headers = {"x-stainless-retry-count": "1"}
    await gateway.http.post("/v1/sessions", json=SESSION, headers=headers)
    [key] = gateway.platform.sessions.keys
    assert key is not None
    assert key.attempt == 1


async def test_requests_without_either_and_reads_carry_no_key(gateway: Gateway) -> None:
    asked = gateway.platform.sessions
    await gateway.http.post("/v1/sessions", json=SESSION)
    await gateway.http.get("/v1/sessions/sesn_1", headers=keyed())
    assert asked.keys == [None, None]


@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", "/v1/agents"), ("POST", "/v1/agents/agent_1/archive")],
)
async def test_every_route_that_changes_something_takes_a_key(
    gateway: Gateway, verb: str, path: str
) -> None:
    body = {"model": "m", "name": "n"} if path == "/v1/agents" else None
    await gateway.http.request(verb, path, json=body, headers=keyed())
    assert gateway.platform.agents.keys[-1] is not None


async def test_what_is_no_key_is_refused_before_anything_is_asked(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/sessions", json=SESSION, headers=keyed("two words"))
    assert answer.status_code == 400
    error = orjson.loads(answer.content)["error"]
    assert error["message"].startswith("Idempotency-Key: must be 1 to 255")
    assert gateway.platform.sessions.requests == []


async def test_the_description_shows_the_header_where_it_is_taken(gateway: Gateway) -> None:
    paths = (await gateway.http.get("/openapi.json")).json()["paths"]
    for template, verbs in paths.items():
        for verb, operation in verbs.items():
            names = {parameter["name"] for parameter in operation["parameters"]}
            shown = "Idempotency-Key" in names
            is_form = "multipart/form-data" in operation.get("requestBody", {}).get("content", {})
            assert shown == (verb != "get" and not is_form), f"{verb} {template}"
            told = "idempotent-replayed" in operation["responses"]["200"]["headers"]
            assert told == shown
