"""`drover vault`, as an operator uses it (docs/credentials.md, docs/operations.md)."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from cli.main import app
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, run_turn

if TYPE_CHECKING:
    from click.testing import Result

    from tests.e2e.stack import Stack


def run(stack: Stack, *arguments: str) -> Result:
    environment = {
        "DROVER_URL": stack.url,
        "DROVER_API_KEY": stack.key,
        "DROVER_DATA_DIR": str(stack.data),
        "COLUMNS": "300",
    }
    return CliRunner(env=environment).invoke(app, ["vault", *arguments])


def test_rotation_tells_how_far_it_is_and_credentials_go_on(stack: Stack) -> None:
    with stack.client() as client:
        vault = client.beta.vaults.create(display_name="Ada")
        auth: Any = {"type": "static_bearer", "mcp_server_url": "https://a.example", "token": "t"}
        made = client.beta.vaults.credentials.create(vault.id, auth=auth)
        keys = stack.data / "vault_proxy" / "keys"
        before = keys.read_text()
        ended = run(stack, "rotate")
        assert ended.exit_code == 0, ended.stderr
        assert keys.read_text().startswith(before)
        number = len(keys.read_text().splitlines()) - 1
        last = ended.stdout.splitlines()[-1].split()
        assert (last[0], last[-1]) == (last[2], f"file:{number}")
        again = run(stack, "rotate", "--no-new-key")
        assert again.stdout.split()[-1] == f"file:{number}"
        changed = client.beta.vaults.credentials.update(
            made.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "u"}
        )
        assert changed.id == made.id


def test_audit_shows_what_a_sandbox_was_refused(stack: Stack) -> None:
    with stack.client() as client:
        environment = client.beta.environments.create(
            name=f"audit {uuid.uuid4().hex}",
            config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": []}},
        )
        agent = new_session(client).agent
        session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
        command = "curl -s http://denied.example/path?query=1; true"
        stack.model.script(tools(ToolUse("bash", {"command": command})), text("done"))
        run_turn(client, session.id, "Go.")
        ended = run(stack, "audit", "--session", session.id, "--json")
        assert ended.exit_code == 0, ended.stderr
        entries = [json.loads(line) for line in ended.stdout.splitlines()]
        (refused,) = [entry for entry in entries if entry["host"] == "denied.example"]
        assert (refused["verdict"], refused["kind"], refused["path"]) == (
            "denied",
            "egress",
            "/path",
        )
        assert refused["reason"] == "host_not_allowed"
        shown = run(stack, "audit", "--session", session.id, "--limit", "1000")
        assert "denied.example:80/path  (host_not_allowed)" in shown.stdout
        assert "query" not in shown.stdout + ended.stdout


def test_audit_says_that_there_are_no_entries_for_what_was_asked(stack: Stack) -> None:
    ended = run(stack, "audit", "--session", "nope", "--vault", "neither", "--json")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert ended.stderr == "no entries for --session nope --vault neither\n"


def test_what_cannot_be_asked_is_told_in_one_line(stack: Stack, tmp_path: Any) -> None:
    ended = run(stack, "rotate", "--data", str(tmp_path))
    assert ended.exit_code == 1
    assert "no stack runs over" in ended.stderr
    assert "--vault-proxy-address" in ended.stderr
    ended = run(stack, "rotate", "--vault-proxy-address", "127.0.0.1:1")
    assert "the vault proxy does not answer at 127.0.0.1:1" in ended.stderr
    assert ended.stderr.count("\n") == 1
