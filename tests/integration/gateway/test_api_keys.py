"""Keys that the registry keeps, as clients of the gateway meet them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from anthropic import AsyncAnthropic, RateLimitError

from gateway.main import build
from tests.doubles.platform import Platform
from tests.integration.gateway.conftest import KEY, Gateway, settings
from tests.integration.gateway.test_access_matrix import API, BODIES, FORMS, IDS, TAKEN
from tests.integration.gateway.test_streams import STREAM, Reader, reading, stamped

STORED = "drover_api_stored"


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    return {"key_cache_seconds": 0.0, "recheck_seconds": 0.02, "resume_seconds": 0.2}


def shown(key: str = STORED, **more: str) -> dict[str, Any]:
    return {"headers": {"x-api-key": key, **more}}


async def routes(gateway: Gateway) -> list[tuple[str, str, str]]:
    paths = (await gateway.http.get("/openapi.json")).json()["paths"]
    return [
        (verb.upper(), template, operation["operationId"])
        for template, verbs in paths.items()
        for verb, operation in verbs.items()
    ]


async def ask(gateway: Gateway, verb: str, template: str, operation: str) -> tuple[int, str]:
    """The status of a request that is right in all but its key, and what was refused."""
    form = FORMS.get(operation)
    body = BODIES.get(operation, {}) if verb == "POST" and form is None else None
    sent: Any = {"json": body, "files": form, **shown()}
    async with gateway.http.stream(verb, template.format(**IDS), **sent) as response:
        if response.status_code == 200:
            return 200, ""
        await response.aread()
        return response.status_code, response.json()["error"]["message"]


async def test_a_key_opens_what_its_scopes_say_and_is_told_what_it_lacks(gateway: Gateway) -> None:
    offered = [route for route in await routes(gateway) if API in TAKEN.get(route[2], {API})]
    for scope in ("write", "read", "sessions:write"):
        gateway.platform.api_keys.add(STORED, scope)
        name, _, verb = scope.rpartition(":")
        answers = await asyncio.gather(*(ask(gateway, *route) for route in offered))
        for route, (status, message) in zip(offered, answers, strict=True):
            area = route[1].split("/")[2]
            changes = "read" if route[0] == "GET" else "write"
            is_admins = area == "api_keys"
            if not is_admins and name in {"", area} and verb in {"write", changes}:
                assert "scopes" not in message, (scope, route)
            else:
                assert status == 403, (scope, route)
                lacks = "admin" if is_admins else f"{area}:{changes}"
                assert message.endswith(f"it needs {lacks}"), (scope, route)


async def test_a_key_is_of_its_own_workspace_and_no_other(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "read", workspace_id="wrkspc_b")
    answer = await gateway.http.get("/v1/agents", **shown())
    assert (answer.status_code, answer.headers["anthropic-workspace-id"]) == (200, "wrkspc_b")
    for named, status in (("wrkspc_b", 200), ("wrkspc_default", 403)):
        told = shown(**{"anthropic-workspace-id": named})
        assert (await gateway.http.get("/v1/agents", **told)).status_code == status


async def test_every_key_may_ask_what_it_is(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "files:read", workspace_id="wrkspc_b")
    told = (await gateway.http.get("/status", **shown())).json()
    assert told["key"] == {
        "id": "apikey_1",
        "workspace_id": "wrkspc_b",
        "scopes": ["files:read"],
        "expires_at": None,
    }
    assert told["processes"] is None
    assert (await gateway.http.get("/status")).json()["processes"]


async def test_the_log_names_a_key_by_its_id_whatever_becomes_of_the_request(
    gateway: Gateway,
) -> None:
    gateway.platform.api_keys.add(STORED, "read", requests_per_minute=2)
    with structlog.testing.capture_logs() as lines:
        await gateway.http.get("/v1/agents", **shown())
        await gateway.http.delete("/v1/environments/env_1", **shown())
        await gateway.http.get("/v1/agents", **shown())
        await gateway.http.get("/v1/agents")
        await gateway.http.get("/v1/agents", **shown("drover_api_wrong"))
        gateway.platform.api_keys.add("drover_api_ended", "read", expires_at=datetime.now(UTC))
        await gateway.http.get("/v1/agents", **shown("drover_api_ended"))
        gateway.platform.api_keys.revoke(STORED)
        await gateway.http.get("/v1/agents", **shown())
        elsewhere = {"anthropic-workspace-id": "wrkspc_b"}
        await gateway.http.get("/v1/agents", headers=elsewhere)
    told = [(line["status"], line.get("api_key")) for line in lines if line["event"] == "request"]
    own = told[3][1]
    assert told == [
        (200, "apikey_1"),
        (403, "apikey_1"),
        (429, "apikey_1"),
        (200, own),
        (401, None),
        (401, "apikey_2"),
        (401, "apikey_1"),
        (403, own),
    ]
    assert own.startswith("apikey_")
    for secret in (STORED, KEY, "drover_api_wrong"):
        assert secret not in repr(lines)


async def test_a_key_that_is_used_up_is_told_when_it_may_go_on(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "read", requests_per_minute=2)
    rest = "anthropic-ratelimit-requests-remaining"
    asked = datetime.now(UTC)
    for left in ("1", "0"):
        answer = await gateway.http.get("/v1/agents", **shown())
        assert (answer.status_code, answer.headers[rest]) == (200, left)
    answered = datetime.now(UTC)
    refused = await gateway.http.get("/v1/agents", **shown())
    since = (datetime.now(UTC) - asked).total_seconds()
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert 30 - since <= int(refused.headers["retry-after"]) <= 30
    assert refused.headers["anthropic-ratelimit-requests-limit"] == "2"
    reset = datetime.fromisoformat(refused.headers["anthropic-ratelimit-requests-reset"])
    assert asked + timedelta(seconds=59) <= reset <= answered + timedelta(seconds=60)
    answer = await gateway.http.get("/v1/agents")
    assert answer.status_code == 200
    assert rest not in answer.headers
    async with AsyncAnthropic(base_url=gateway.url, api_key=STORED, max_retries=0) as client:
        with pytest.raises(RateLimitError, match="2 requests a minute"):
            await client.beta.sessions.list()


async def revoke(gateway: Gateway) -> None:
    gateway.platform.api_keys.revoke(STORED)


async def expire(gateway: Gateway) -> None:
    key = gateway.platform.api_keys.stored[STORED]
    key.expires_at.FromDatetime(datetime.now(UTC))


@pytest.mark.parametrize(("end", "why"), [(revoke, "was revoked"), (expire, "has expired")])
async def test_an_open_stream_ends_with_its_key(gateway: Gateway, end: Any, why: str) -> None:
    gateway.platform.api_keys.add(STORED, "sessions:read")
    feed = gateway.platform.sessions
    async with reading(gateway, **shown()) as theirs, reading(gateway) as ours:
        await feed.publish(stamped(1))
        assert [(await one.frame()).id for one in (theirs, ours)] == ["sevt_1", "sevt_1"]
        await end(gateway)
        (last,) = await theirs.rest()
        assert (last.event, last.data["error"]["type"]) == ("error", "authentication_error")
        assert why in last.data["error"]["message"]
        assert STORED not in str(last.data)
        await feed.publish(stamped(2))
        assert (await ours.frame()).id == "sevt_2"


async def test_a_stream_ends_when_its_key_expires_however_seldom_it_is_asked_about(
    gateway: Gateway,
) -> None:
    for seconds in (0.2, 2, 20):  # until the stream is open before then
        soon = datetime.now(UTC) + timedelta(seconds=seconds)
        gateway.platform.api_keys.add(STORED, "read", expires_at=soon)
        async with gateway.http.stream("GET", STREAM, **shown()) as response:
            if response.status_code == 200:
                (last,) = await Reader(response).rest()
                break
    assert "has expired" in last.data["error"]["message"]
    assert datetime.now(UTC) >= soon


async def test_known_keys_go_on_while_the_registry_is_away_and_others_wait(
    gateway: Gateway,
) -> None:
    gateway.platform.api_keys.add(STORED, "read")
    assert (await gateway.http.get("/v1/sessions", **shown())).status_code == 200
    await gateway.platform.stop("registry")
    assert (await gateway.http.get("/v1/sessions", **shown())).status_code == 200
    answer = await gateway.http.get("/v1/sessions", **shown("drover_api_new"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (await gateway.http.get("/v1/sessions")).status_code == 200


async def test_a_gateway_that_stops_waits_for_no_registry_that_hangs(
    tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What requests have to end in: far less than the registry has to answer in.
    monkeypatch.setattr("gateway.server._GRACE_SECONDS", 1)
    platform.api_keys.answering.clear()
    async with AsyncExitStack() as stack:
        server = await build(settings(tmp_path, platform), stack)
        url = f"http://{server.address}/v1/agents"
        async with httpx2.AsyncClient(timeout=30) as http:
            asking = asyncio.create_task(http.get(url, headers=shown()["headers"]))
            async with asyncio.timeout(30):
                while not platform.api_keys.asked:
                    await asyncio.wait({asking}, timeout=0.01)
            asking.cancel()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 9
    platform.api_keys.answering.set()


async def test_a_key_of_no_area_is_refused_before_it_is_made(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/api_keys", json={"scopes": ["session:read"]})
    assert answer.status_code == 400
    assert "there is no area 'session'" in answer.json()["error"]["message"]
    assert not gateway.platform.api_keys.requests
    answer = await gateway.http.post("/v1/api_keys", json={"scopes": ["sessions:read"]})
    assert answer.status_code == 200
    assert gateway.platform.api_keys.last.every_workspace
    answer = await gateway.http.get("/v1/api_keys?every_workspace=true")
    assert answer.status_code == 400
