"""Sessions forked, exported and imported on real stacks, with the official SDK and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.doubles.api_history import check_history
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn, send, texts
from tests.e2e.stack import BETA, ROOT, Stack

CUSTOM = {
    "type": "custom",
    "name": "ask_user",
    "description": "Asks the user.",
    "input_schema": {"type": "object", "properties": {}},
}


@pytest.fixture
def elsewhere(own_stack: Stack) -> Stack:
    """Another installation."""
    return own_stack


def drover(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command against a stack by its data directory."""
    environment = {name: value for name, value in os.environ.items() if "DROVER" not in name}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments, "--data", str(stack.data)],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=60,
    )


def fork(client: anthropic.Anthropic, session_id: str, **body: Any) -> Any:
    return client.post(
        f"/v1/sessions/{session_id}/fork",
        cast_to=object,
        body=body or None,
        options={"headers": {"anthropic-beta": BETA}},
    )


def ids(events: Any) -> list[str]:
    return [event.id for event in events]


def test_fork_goes_on_with_a_history_that_the_model_takes(stack: Stack) -> None:
    client = stack.client()
    session = new_session(client, tools=[{"type": "agent_toolset_20260401"}, CUSTOM])
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo out"}), ToolUse("ask_user", {})),
        text("in the fork"),
    )
    run_turn(client, session.id, "what is it?")
    log = history(client, session.id)
    forked = fork(client, session.id)
    assert forked["id"] != session.id
    assert forked["status"] == "idle"
    copy = history(client, forked["id"])
    assert ids(copy)[: len(log)] == ids(log)
    asked = next(event for event in log if event.type == "agent.custom_tool_use")
    closing = copy[len(log) :]
    assert [event.type for event in closing] == [
        "user.custom_tool_result",
        "session.thread_status_idle",
        "session.usage",
        "session.status_idle",
    ]
    assert closing[0].custom_tool_use_id == asked.id
    assert closing[0].is_error
    assert "forked" in closing[0].content[0].text
    run_turn(client, forked["id"], "never mind: say something")
    said = history(client, forked["id"])
    assert ids(said)[: len(copy)] == ids(copy)
    assert texts(said, "agent.message")[-1] == "in the fork"
    request = stack.model.requests[-1].body
    check_history(request)
    results = {
        block["tool_use_id"]
        for sent in request["messages"]
        for block in sent["content"]
        if block["type"] == "tool_result"
    }
    assert len(results) == 2
    # The source waits as before, and its usage is not the fork's.
    assert history(client, session.id) == log
    used = client.beta.sessions.retrieve(forked["id"]).usage
    last = next(e for e in reversed(said) if e.type == "span.model_request_end").model_usage
    assert used.input_tokens == last.input_tokens
    threads = [
        client.beta.sessions.threads.list(one).data[0].id for one in (session.id, forked["id"])
    ]
    assert threads[0] != threads[1]
    named = [event for event in copy if event.type.startswith("session.thread_status")]
    assert {event.session_thread_id for event in named} == {threads[1]}


def test_fork_at_an_event_by_http_and_by_the_command(stack: Stack) -> None:
    client = stack.client()
    session = new_session(client, title="Flock", metadata={"a": "b"})
    stack.model.script(text("one"), text("two"), text("three"))
    run_turn(client, session.id, "first")
    run_turn(client, session.id, "second")
    log = history(client, session.id)
    idle = next(event for event in log if event.type == "session.status_idle")
    cut = log.index(idle) + 1
    done = drover(stack, "fork", session.id, "--event", idle.id)
    assert done.returncode == 0, done.stderr
    by_command = done.stdout.decode().strip()
    by_http = fork(client, session.id, event_id=idle.id)
    assert by_http["title"] == "Flock"
    assert by_http["metadata"] == {"a": "b"}
    assert "forked_from" not in by_http
    for forked in (by_command, by_http["id"]):
        assert ids(history(client, forked)) == ids(log)[:cut]
    run_turn(client, by_command, "another second")
    assert texts(history(client, by_command), "agent.message") == ["one", "three"]
    missing = drover(stack, "fork", session.id, "--event", "nowhere")
    assert missing.returncode == 1
    assert b"event_id: the session's log has no such event" in missing.stderr
    with pytest.raises(anthropic.BadRequestError, match="event_id"):
        fork(client, session.id, event_id="")
    with pytest.raises(anthropic.BadRequestError, match="event"):
        fork(client, session.id, event=idle.id)
    with pytest.raises(anthropic.NotFoundError):
        fork(client, "sesn_0")


def test_session_moves_to_another_installation_and_goes_on_there(
    stack: Stack, elsewhere: Stack, tmp_path: Path
) -> None:
    client, there = stack.client(), elsewhere.client()
    session = new_session(client, title="Flock")
    stack.model.script(tools(ToolUse("bash", {"command": "echo moved > file"})), text("written"))
    run_turn(client, session.id, "write it")
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    done = drover(stack, "export", session.id, "-o", str(first))
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    done = drover(elsewhere, "import", str(first))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == session.id
    second.write_bytes(drover(elsewhere, "export", session.id).stdout)
    assert second.read_bytes() == first.read_bytes()
    values = [json.loads(line) for line in first.read_bytes().splitlines()]
    assert values[0]["session"]["title"] == "Flock"
    assert len(values) == len(history(client, session.id)) + 2
    # The same to a client, but for the id of who asks.
    assert history(there, session.id) == history(client, session.id)
    moved = there.beta.sessions.retrieve(session.id)
    assert moved.usage == client.beta.sessions.retrieve(session.id).usage
    elsewhere.model.script(text("here too"))
    run_turn(there, session.id, "and now?")
    check_history(elsewhere.model.requests[-1].body)
    assert texts(history(there, session.id), "agent.message") == ["written", "here too"]
    again = drover(elsewhere, "import", str(first))
    assert again.returncode == 1
    assert f"session {session.id} exists already".encode() in again.stderr
    there.beta.sessions.delete(session.id)
    assert drover(elsewhere, "import", str(first)).returncode == 0
    assert drover(elsewhere, "export", session.id).stdout == first.read_bytes()
    # Its hands go on from where their generations were, though they were purged meanwhile.
    elsewhere.model.script(tools(ToolUse("bash", {"command": "echo again"})), text("and again"))
    run_turn(there, session.id, "once more")
    results = [e for e in history(there, session.id) if e.type == "agent.tool_result"]
    assert [bool(result.is_error) for result in results] == [False, False]


def test_session_that_waits_in_the_middle_of_its_work_is_not_imported(
    stack: Stack, elsewhere: Stack, tmp_path: Path
) -> None:
    client = stack.client()
    session = new_session(client)
    stack.model.script(tools(ToolUse("bash", {"command": "sleep 100"})), text("stopped"))
    send(client, session.id, "sleep")
    stack.wait_for(
        lambda: any(event.type == "agent.tool_use" for event in history(client, session.id)),
        "the call",
    )
    running = drover(stack, "export", session.id)
    assert running.returncode == 0
    assert b"can be read, but not imported" in running.stderr
    file = tmp_path / "running.jsonl"
    file.write_bytes(running.stdout)
    refused = drover(elsewhere, "import", str(file))
    assert refused.returncode == 1
    assert b"the session ran when it was exported" in refused.stderr
    forked = fork(client, session.id)
    client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    file.write_bytes(drover(stack, "export", forked["id"]).stdout)
    imported = drover(elsewhere, "import", str(file))
    assert imported.returncode == 0, imported.stderr
    results = [
        e for e in history(elsewhere.client(), forked["id"]) if e.type == "agent.tool_result"
    ]
    assert [result.is_error for result in results] == [True]


def test_operators_commands_need_the_secret_of_the_installation(
    stack: Stack, elsewhere: Stack
) -> None:
    run = stack.data / "run"
    asked = ("export", "sesn_1", "--session-address", stack.address("session"))
    done = drover(elsewhere, *asked)
    assert done.returncode == 1
    assert done.stderr.startswith(b"drover: the session service does not answer at")
    assert b"--tls-dir names its certificate" in done.stderr
    asked += ("--tls-dir", str(run / "tls" / "operator"))
    done = drover(elsewhere, *asked)
    assert b"does not take this secret" in done.stderr
    token = run / "token"
    done = drover(elsewhere, *asked, "--token-file", str(token))
    assert b"session sesn_1 not found" in done.stderr
    assert token.read_text().strip().encode() not in done.stderr
