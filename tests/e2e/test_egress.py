"""The way out of a sandbox through the whole stack: what a session's program is given, what it
reaches, what it is told, and what is recorded of it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.doubles.echo_https import EchoServer, running_echo
from tests.doubles.messages_reply import ToolUse, text, tools
from tests.doubles.package_stage import lacking
from tests.e2e.driving import MODEL, TOOLSET, history, run_turn
from tests.e2e.stack import Stack, running_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CANARY = "sk-canary-Zq7Xw1/+"


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoServer]:
    with running_echo(tmp_path_factory.mktemp("echo")) as server:
        yield server


@pytest.fixture(scope="module")
def stack(echo: EchoServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(
        tmp_path_factory.mktemp("egress") / "data",
        brains=1,
        DROVER_EGRESS_ALLOW_PRIVATE=echo.opening,
        DROVER_EGRESS_CA_FILE=str(echo.ca_file),
        DROVER_PACKAGE_INDEXES=f"npm={echo.url}/npm/",
    ) as running:
        yield running


def _session(stack: Stack, allowed: Sequence[str], bound: Sequence[str]) -> Any:
    client = stack.client()
    vault = client.beta.vaults.create(display_name="Ada")
    client.beta.vaults.credentials.create(
        vault.id,
        auth={
            "type": "environment_variable",
            "secret_name": "API_KEY",
            "secret_value": CANARY,
            "networking": {"type": "limited", "allowed_hosts": list(bound)},
        },
    )
    networking: Any = {"type": "limited", "allowed_hosts": list(allowed)}
    environment = client.beta.environments.create(
        name=f"desk-{uuid.uuid4().hex}", config={"type": "cloud", "networking": networking}
    )
    agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[TOOLSET])
    return client.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, vault_ids=[vault.id]
    )


def _ran(stack: Stack, session_id: str, command: str) -> str:
    """What a command in the session's sandbox printed."""
    stack.model.script(tools(ToolUse("bash", {"command": command})), text("done"))
    seen = run_turn(stack.client(), session_id, "go")
    results = [event for event in seen if event.type == "agent.tool_result"]
    return "".join(block.text for block in results[-1].content)


def _trail(stack: Stack, session_id: str) -> list[dict[str, Any]]:
    answer = _read(stack, "/v1/vault_audit", session_id=session_id, limit=100)
    return list(answer.json()["data"])


def _read(stack: Stack, path: str, **query: Any) -> httpx2.Response:
    return httpx2.get(f"{stack.url}{path}", params=query, headers=stack.headers, timeout=60)


def test_a_program_uses_a_credential_that_it_never_sees(stack: Stack, echo: EchoServer) -> None:
    session = _session(stack, [echo.name], [echo.name])
    printed = _ran(
        stack,
        session.id,
        f'env | grep API_KEY; curl -sS "{echo.url}/v1?x=$API_KEY" -H "Authorization: Bearer '
        '$API_KEY" -H "Content-Type: application/json" -d "{\\"key\\": \\"$API_KEY\\"}"',
    )
    assert echo.heard, printed
    heard = echo.heard[-1]
    assert heard["authorization"] == f"Bearer {CANARY}"
    assert json.loads(heard[":body"]) == {"key": CANARY}
    assert "drover_placeholder_" in heard[":line"]
    assert CANARY not in heard[":line"]
    assert "API_KEY=drover_placeholder_" in printed
    assert CANARY not in printed
    assert "Bearer " + "*" * len(CANARY) in printed
    log = _read(stack, f"/v1/sessions/{session.id}/events", limit=1000).text
    assert CANARY not in log
    assert "drover_placeholder_" in log
    entries = [one for one in _trail(stack, session.id) if one["kind"] == "egress"]
    used = [one for one in entries if one["verdict"] == "allowed" and one["credential_id"]]
    assert {(one["host"], one["port"], one["path"]) for one in used} == {
        (echo.name, echo.port, "/v1")
    }
    assert any("query" in (one["reason"] or "") for one in entries)
    assert CANARY not in json.dumps(entries)


def test_a_host_that_is_not_listed_is_refused_with_what_would_allow_it(stack: Stack) -> None:
    session = _session(stack, [], ["elsewhere.example"])
    printed = _ran(
        stack, session.id, "curl -sS http://denied.example/; curl -sS https://denied.example/ 2>&1"
    )
    assert "host_not_allowed" in printed
    assert "allowed_hosts of config.networking" in printed
    assert "403" in printed
    denied = [one for one in _trail(stack, session.id) if one["verdict"] == "denied"]
    assert {(one["host"], one["reason"]) for one in denied} == {
        ("denied.example", "host_not_allowed")
    }


def test_a_credential_whose_host_is_closed_is_told_of_once_a_run(
    stack: Stack, echo: EchoServer
) -> None:
    session = _session(stack, [echo.name], ["elsewhere.example"])
    _ran(stack, session.id, f"curl -sS {echo.url}/")
    errors = [
        event.error
        for event in history(stack.client(), session.id)
        if event.type == "session.error"
    ]
    assert [error.type for error in errors] == ["credential_host_unreachable_error"]
    assert "elsewhere.example" in errors[0].message


def test_a_changed_credential_applies_to_the_next_request(stack: Stack, echo: EchoServer) -> None:
    session = _session(stack, [echo.name], [echo.name])
    ask = f'curl -sS {echo.url}/ -H "X-Api-Key: $API_KEY"'
    _ran(stack, session.id, ask)
    assert echo.heard[-1]["x-api-key"] == CANARY
    client = stack.client()
    vault_id = session.vault_ids[0]
    credential = next(iter(client.beta.vaults.credentials.list(vault_id)))
    client.beta.vaults.credentials.delete(credential.id, vault_id=vault_id)
    before = len(echo.heard)
    printed = _ran(stack, session.id, ask)
    assert "placeholder_unknown" in printed
    assert len(echo.heard) == before


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_packages_are_asked_of_the_operators_index_and_what_fails_is_an_event(
    stack: Stack, echo: EchoServer
) -> None:
    client = stack.client()
    networking: Any = {
        "type": "limited",
        "allow_package_managers": True,
        "allowed_hosts": [echo.name],
    }
    config: Any = {"type": "cloud", "networking": networking, "packages": {"npm": ["greeter"]}}
    environment = client.beta.environments.create(name=f"npm-{uuid.uuid4().hex}", config=config)
    agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[TOOLSET])
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    assert _ran(stack, session.id, "echo on") == "on"
    (told,) = [one for one in history(client, session.id) if one.type == "session.error"]
    assert told.error.type == "unknown_error"
    assert "npm has not installed greeter" in told.error.message
    assert any("/npm/greeter" in one[":line"] for one in echo.heard)  # which knows no package
    asked = [one for one in _trail(stack, session.id) if one["path"] == "/npm/greeter"]
    assert {(one["host"], one["verdict"]) for one in asked} == {(echo.name, "allowed")}
