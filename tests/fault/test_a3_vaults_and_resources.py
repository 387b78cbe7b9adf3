"""A3 for what the vault proxy keeps, and for what sessions are given: repositories and files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.e2e.driving import new_session
from tests.e2e.stack import Stack

TOKEN = "sk-canary-a3"  # noqa: S105 - no real one
BEARER = {"type": "static_bearer", "mcp_server_url": "https://mcp.example.com/m", "token": TOKEN}
CREDENTIAL = "/v1/vaults/{vault_id}/credentials/{credential_id}"
RESOURCE = "/v1/sessions/{session_id}/resources/{resource_id}"
APART = {
    # Its answer is what the server says at that moment.
    f"POST {CREDENTIAL}/mcp_oauth_validate",
}


def vault(stack: Stack) -> str:
    with stack.client() as client:
        return f"/v1/vaults/{client.beta.vaults.create(display_name='Ada').id}"


def credential(stack: Stack) -> str:
    place = f"{vault(stack)}/credentials"
    made = httpx2.post(f"{stack.url}{place}", json={"auth": BEARER}, headers=stack.headers)
    return f"{place}/{made.json()['id']}"


def repository(stack: Stack) -> str:
    url = "https://github.com/acme/tools"
    given: Any = {"type": "github_repository", "url": url, "authorization_token": TOKEN}
    with stack.client() as client:
        session = new_session(client, resources=[given])
    return f"/v1/sessions/{session.id}/resources/{session.resources[0].id}"


def file(stack: Stack) -> str:
    """A file in a session, as a resource."""
    uploaded = upload(stack)
    with stack.client() as client:
        session = new_session(client, resources=[{"type": "file", "file_id": uploaded}])
    return f"/v1/sessions/{session.id}/resources/{session.resources[0].id}"


def upload(stack: Stack) -> str:
    with stack.client() as client:
        return client.beta.files.upload(file=("notes.txt", b"notes")).id


def session(stack: Stack) -> str:
    with stack.client() as client:
        return f"/v1/sessions/{new_session(client).id}/resources"


SAMPLES: dict[str, tuple[Callable[[Stack], str], Any]] = {
    "POST /v1/vaults": (lambda _: "/v1/vaults", {"display_name": "Ada"}),
    "POST /v1/vaults/{vault_id}": (vault, {"display_name": "Grace"}),
    "DELETE /v1/vaults/{vault_id}": (vault, None),
    "POST /v1/vaults/{vault_id}/archive": (lambda stack: f"{vault(stack)}/archive", None),
    "POST /v1/vaults/{vault_id}/credentials": (
        lambda stack: f"{vault(stack)}/credentials",
        {"auth": BEARER},
    ),
    f"POST {CREDENTIAL}": (credential, {"auth": {"type": "static_bearer", "token": "newer"}}),
    f"DELETE {CREDENTIAL}": (credential, None),
    f"POST {CREDENTIAL}/archive": (lambda stack: f"{credential(stack)}/archive", None),
    "POST /v1/sessions/{session_id}/resources": (
        session,
        lambda stack: {"type": "file", "file_id": upload(stack)},
    ),
    f"DELETE {RESOURCE}": (file, None),
    f"POST {RESOURCE}": (repository, {"authorization_token": "newer"}),
}


@pytest.mark.parametrize("route", SAMPLES)
def test_every_route_that_takes_a_key_gives_its_answer_again(stack: Stack, route: str) -> None:
    place, body = SAMPLES[route]
    body = body(stack) if callable(body) else body
    verb, url = route.partition(" ")[0], f"{stack.url}{place(stack)}"
    headers = stack.headers | {"Idempotency-Key": uuid.uuid4().hex}
    first, again = (httpx2.request(verb, url, json=body, headers=headers) for _ in range(2))
    assert first.status_code == 200, first.text
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    other = httpx2.request(verb, f"{url}?beta=true", json=body, headers=headers)
    assert other.status_code == 409
    assert TOKEN not in first.text + other.text


def test_no_route_that_shows_the_header_is_missing_here(stack: Stack) -> None:
    paths = httpx2.get(f"{stack.url}/openapi.json").json()["paths"]
    shown = {
        f"{verb.upper()} {path}"
        for path, verbs in paths.items()
        for verb, operation in verbs.items()
        if any(one["name"] == "Idempotency-Key" for one in operation["parameters"])
        and path.startswith(("/v1/vaults", "/v1/sessions/{session_id}/resources"))
    }
    assert shown == {*SAMPLES} | APART
