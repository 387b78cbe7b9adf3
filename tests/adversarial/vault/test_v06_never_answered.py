"""V6: what is read, listed, refused or logged of a credential never holds its value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.stack import Stack

CANARY = "skcanary7Hn3Vd9"
URL = "https://mcp.example.com/mcp"
BEARER = {"type": "static_bearer", "mcp_server_url": URL, "token": CANARY}
VARIABLE = {
    "type": "environment_variable",
    "secret_name": "KEY",
    "secret_value": CANARY,
    "networking": {"type": "unrestricted"},
}
OAUTH: dict[str, Any] = {
    "type": "mcp_oauth",
    "mcp_server_url": URL,
    "access_token": CANARY,
    "refresh": {
        "client_id": "c",
        "refresh_token": CANARY,
        "token_endpoint": "https://auth.example.com/token",
        "token_endpoint_auth": {"type": "client_secret_post", "client_secret": CANARY},
    },
}

BROKEN: list[Any] = [
    BEARER | {"token": [CANARY]},
    BEARER | {"token": {"value": CANARY}},
    BEARER | {"token": f"{CANARY}\n"},
    BEARER | {"token": f"{CANARY} {CANARY}"},
    BEARER | {"token": CANARY * 2_000},
    BEARER | {"mcp_server_url": f"https://user:{CANARY}@a.example"},
    BEARER | {"mcp_server_url": f"https://a.example/#{CANARY}"},
    BEARER | {"mcp_server_url": CANARY},
    BEARER | {"secret_value": CANARY},
    VARIABLE | {"secret_value": f"{CANARY}\0"},
    VARIABLE | {"secret_name": f"{CANARY}="},
    VARIABLE | {"secret_name": "PATH"},
    VARIABLE | {"networking": CANARY},
    VARIABLE | {"networking": {"type": "limited", "allowed_hosts": [f"{CANARY}.example:1"]}},
    VARIABLE | {"injection_location": CANARY},
    OAUTH | {"expires_at": CANARY},
    OAUTH | {"expires_at": "2020-01-01T00:00:00Z"},
    OAUTH | {"refresh": OAUTH["refresh"] | {"refresh_token": f"{CANARY}\r"}},
    CANARY,
    [CANARY],
    {},
]


@pytest.fixture
def http(stack: Stack) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=stack.url, headers=stack.headers, timeout=30) as http:
        yield http


@pytest.fixture
def vault(http: httpx2.Client) -> str:
    made: dict[str, str] = http.post("/v1/vaults", json={"display_name": "Ada"}).json()
    return f"/v1/vaults/{made['id']}"


def logged(stack: Stack) -> str:
    return "".join(log.read_text() for log in (stack.data / "logs").iterdir())


def test_no_answer_about_a_stored_credential_holds_its_value(
    stack: Stack, http: httpx2.Client, vault: str
) -> None:
    path = f"{vault}/credentials"
    answers = [http.post(path, json={"auth": auth}) for auth in (BEARER, VARIABLE)]
    one = f"{path}/{answers[0].json()['id']}"
    answers += [
        http.get(one),
        http.get(path),
        http.get(path, params={"include_archived": "true"}),
        http.post(one, json={"display_name": "x", "auth": {"type": "static_bearer"}}),
        http.post(one, json={"auth": BEARER | {"token": f"{CANARY}2"}}),
        http.post(one, json={"auth": {"type": "static_bearer", "token": f"{CANARY}3"}}),
        http.post(path, json={"auth": BEARER}),
        http.post(f"{one}/mcp_oauth_validate"),
        http.post(f"{one}/archive"),
        http.get(one),
        http.post(path, json={"auth": OAUTH}),
        http.get("/v1/vault_audit"),
        http.get(vault),
        http.get("/v1/vaults"),
        http.delete(one),
        http.delete(vault),
    ]
    assert {200, 400, 409} == {answer.status_code for answer in answers}
    for answer in answers:
        assert CANARY not in answer.text + str(answer.headers), answer.request.url
    assert CANARY not in logged(stack)


def test_no_refusal_of_a_broken_request_holds_what_was_sent_as_a_secret(
    stack: Stack, http: httpx2.Client, vault: str
) -> None:
    path = f"{vault}/credentials"
    made = http.post(path, json={"auth": VARIABLE | {"secret_value": "fine"}}).json()
    for auth in BROKEN:
        for where in (path, f"{path}/{made['id']}"):
            answer = http.post(where, json={"auth": auth})
            assert answer.status_code == 400, (auth, answer.text)
            assert CANARY not in answer.text, (auth, answer.text)
    for raw in (f'{{"auth": {{"token": "{CANARY}', f'{{"auth": "{CANARY}\n"}}', CANARY):
        answer = http.post(path, content=raw, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert CANARY not in answer.text
    assert json.dumps(CANARY)[1:-1] not in logged(stack)
