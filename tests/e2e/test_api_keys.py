"""Keys as an operator makes them and a client uses them (docs/access.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx2
import pytest
from anthropic import Anthropic, AuthenticationError, NotFoundError, PermissionDeniedError

from tests.doubles.messages_api import text
from tests.e2e.driving import new_session, send
from tests.e2e.keys import new_api_key
from tests.e2e.stack import ROOT

if TYPE_CHECKING:
    from tests.e2e.stack import Stack

WORKSPACE = "wrkspc_of-keys"


def drover(stack: Stack, *words: str) -> str:
    """What a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        cwd=ROOT,
        env=os.environ | {"DROVER_URL": stack.url, "DROVER_API_KEY": stack.key},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout.strip()


def client_with(stack: Stack, key: str) -> Anthropic:
    return Anthropic(base_url=stack.url, api_key=key, timeout=60, max_retries=0)


def test_a_key_from_the_command_line_opens_its_workspace_until_it_is_revoked(stack: Stack) -> None:
    stack.model.script(text("Hello."))
    key = drover(stack, "keys", "create", "--workspace", WORKSPACE, "--quiet")
    with client_with(stack, key) as client, stack.client() as ours:
        session = new_session(client)
        send(client, session.id, "Say hello.")
        stack.until_idle(client, session.id)
        assert session.id not in {one.id for one in ours.beta.sessions.list()}
        with pytest.raises(NotFoundError):
            ours.beta.sessions.retrieve(session.id)
        keys = f"{stack.url}/v1/api_keys"
        query = {"workspace_id": WORKSPACE}
        listed = httpx2.get(keys, params=query, headers=stack.headers, timeout=60).json()["data"]
        key_id = next(one["id"] for one in listed if one["hint"] == key[-4:])
        assert httpx2.delete(f"{keys}/{key_id}", headers=stack.headers, timeout=60).json()[
            "revoked_at"
        ]

        def is_refused() -> bool:
            try:
                client.beta.sessions.retrieve(session.id)
            except AuthenticationError as error:
                return "was revoked" in str(error)
            return False

        stack.wait_for(is_refused, "the end of the key")
    secret = key.removeprefix("drover_api_").encode()
    assert stack.files_with(secret) == []
    log = stack.data / "logs" / "gateway.log"
    stack.wait_for(lambda: key_id.encode() in log.read_bytes(), "the key's id in the log")


def test_a_narrow_key_does_what_it_is_for_and_nothing_else(stack: Stack) -> None:
    key = new_api_key(stack, WORKSPACE, "sessions:write", "agents:read", name="narrow")["key"]
    with client_with(stack, key) as client:
        list(client.beta.agents.list())
        with pytest.raises(PermissionDeniedError, match="it needs environments:write"):
            client.beta.environments.create(name="farm")
        with pytest.raises(PermissionDeniedError, match="it needs agents:write"):
            client.beta.agents.create(name="clerk", model="claude-opus-5-5")
    answer = httpx2.get(
        f"{stack.url}/v1/api_keys", headers={**stack.headers, "x-api-key": key}, timeout=60
    )
    assert answer.json()["error"]["message"].endswith("it needs admin")
