"""CASES A6: what a request says of itself, and of those that it came by, is not believed."""

from __future__ import annotations

from tests.integration.gateway.conftest import Gateway

EVIL = "evil.example"
SPOOFED = (
    {"x-forwarded-host": "localhost"},
    {"x-forwarded-server": "localhost"},
    {"x-original-host": "localhost"},
    {"x-host": "localhost"},
    {"forwarded": "host=localhost;for=127.0.0.1"},
    {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1"},
    {"origin": "http://localhost", "referer": "http://localhost/docs"},
)


async def test_a_rebound_name_is_refused_whatever_else_the_request_says(gateway: Gateway) -> None:
    for headers in SPOOFED:
        answer = await gateway.http.get("/v1/agents", headers={"host": EVIL, **headers})
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
        assert "DROVER_ALLOWED_HOSTS" in answer.json()["error"]["message"]
    assert not gateway.platform.agents.requests


async def test_a_rebound_page_reads_nothing_not_even_without_a_key(gateway: Gateway) -> None:
    gateway.http.headers.pop("x-api-key")
    for path in ("/docs", "/openapi.json", "/metrics", "/status", "/v1/agents", "/nothing"):
        answer = await gateway.http.get(path, headers={"host": EVIL})
        assert answer.status_code == 403, path
    for path in ("/healthz", "/readyz"):  # for probes, which call by address; they tell nothing
        answer = await gateway.http.get(path, headers={"host": EVIL})
        assert answer.status_code == 200, path


async def test_no_page_of_another_origin_is_let_read_an_answer(gateway: Gateway) -> None:
    for verb in ("GET", "OPTIONS"):
        asked = {"origin": f"http://{EVIL}", "access-control-request-method": "GET"}
        answer = await gateway.http.request(verb, "/v1/agents", headers=asked)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_what_services_tell_each_other_is_not_taken_from_a_client(gateway: Gateway) -> None:
    key = {"idempotency-key": "k"}
    spoofed = {
        "x-drover-workspace-id": "wrkspc_b",
        "x-request-id": "req_mine",
        "x-drover-idempotency-bin": "AAAA",
        "x-drover-token": "guessed",
        **key,
    }
    for headers in (key, spoofed):
        answer = await gateway.http.post(
            "/v1/agents", headers=headers, json={"name": "clerk", "model": "m"}
        )
        assert answer.status_code == 200
        assert answer.headers["anthropic-workspace-id"] == "wrkspc_default"
        assert answer.headers["request-id"] != "req_mine"
    first, second = gateway.platform.agents.keys
    assert first is not None
    assert second is not None
    assert first.id == second.id


async def test_a_scheme_that_a_client_claims_changes_no_answer(gateway: Gateway) -> None:
    plain = (await gateway.http.get("/openapi.json")).json()
    claimed = {"x-forwarded-proto": "https", "x-forwarded-prefix": "/evil", "x-forwarded-port": "1"}
    assert (await gateway.http.get("/openapi.json", headers=claimed)).json() == plain
