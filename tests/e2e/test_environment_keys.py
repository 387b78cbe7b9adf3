"""Workers with keys from the command line, as an operator sets them up (docs/self-hosted.md)."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from anthropic import AuthenticationError, NotFoundError, PermissionDeniedError

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history, new_session, send, texts, user_message
from tests.e2e.stack import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anthropic import Anthropic

    from tests.e2e.stack import Stack


def key_from_the_command_line(stack: Stack, environment_id: str) -> str:
    """What an operator's script would take."""
    environment = os.environ | {"DROVER_URL": stack.url, "DROVER_API_KEY": stack.key}
    command = "keys", "create", "--environment", environment_id, "--quiet"
    run = [sys.executable, "-m", "cli.main", *command]
    return subprocess.run(
        run, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def new_key(stack: Stack, environment_id: str) -> dict[str, Any]:
    path = f"{stack.url}/v1/environments/{environment_id}/keys"
    made: dict[str, Any] = httpx2.post(path, json={}, headers=stack.headers, timeout=60).json()
    return made


@pytest.fixture
def client(stack: Stack) -> Iterator[Anthropic]:
    with stack.client(max_retries=0) as client:
        yield client


def as_worker(stack: Stack, key: str) -> Anthropic:
    """The official client with a worker's key alone, as the SDK's own worker has it."""
    return stack.client(max_retries=0).copy(auth_token=key)


def poll(stack: Stack, worker: Anthropic, environment_id: str) -> Any:
    found: list[Any] = []

    def there() -> bool:
        work = worker.beta.environments.work.poll(environment_id, block_ms=999)
        found[:] = [] if work is None else [work]
        return bool(found)

    stack.wait_for(there, "work")
    return found[0]


def ended(client: Anthropic, session_id: str) -> bool:
    """Whether the turn is over: a session that waits for its worker is idle, too."""
    last = history(client, session_id)[-1]
    return last.type == "session.status_idle" and last.stop_reason.type == "end_turn"


def from_the_page(folder: Path) -> list[Path]:
    """The programs of the page, each in a file: the worker, the poller and what it starts."""
    page = (ROOT / "docs" / "self-hosted.md").read_text()
    programs = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "main()" in code]
    files = [folder / name for name in ("worker.py", "poller.py", "serve.py")]
    for file, code in zip(files, programs, strict=True):
        here = code.replace("/workspace", str(folder))
        file.write_text(re.sub(r"max_idle=\d+", "max_idle=0.1", here))
    return files


@contextmanager
def at_work(program: Path, stack: Stack, environment_id: str, key: str) -> Iterator[None]:
    """A program that runs with what the page says that it is given, and with nothing else."""
    given = {
        "ANTHROPIC_BASE_URL": stack.url,
        "ANTHROPIC_ENVIRONMENT_ID": environment_id,
        "ANTHROPIC_ENVIRONMENT_KEY": key,
    }
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    run = [sys.executable, program.name]
    with subprocess.Popen(run, env=environment | given, cwd=program.parent) as process:
        try:
            yield
        finally:
            process.kill()


def test_the_pages_worker_serves_a_session_with_a_key_from_the_command_line(
    stack: Stack, client: Anthropic, tmp_path: Path
) -> None:
    stack.model.script(
        tools(ToolUse("bash", {"command": "echo made-$((40 + 2)) > here.txt; cat here.txt"})),
        text("all done"),
    )
    session = new_session(client, self_hosted=True)
    key = key_from_the_command_line(stack, session.environment_id)
    program, *_ = from_the_page(tmp_path)
    with at_work(program, stack, session.environment_id, key):
        send(client, session.id, "work")
        log = stack.until_idle(client, session.id)
    assert texts(log, "agent.message") == ["all done"]
    (result,) = [event for event in log if event.type == "user.tool_result"]
    assert "made-42" in str(result.content)
    assert (tmp_path / "here.txt").read_text() == "made-42\n"
    assert session.id not in stack.sandboxes()


def test_the_pages_poller_hands_an_item_to_a_fresh_process_that_never_sees_its_key(
    stack: Stack, client: Anthropic, tmp_path: Path
) -> None:
    look = "cat /proc/$PPID/environ | tr '\\0' '\\n' | sed 's/=.*//'; pwd"
    stack.model.script(tools(ToolUse("bash", {"command": look})), text("all done"))
    session = new_session(client, self_hosted=True)
    key = new_key(stack, session.environment_id)["key"]
    _, program, _ = from_the_page(tmp_path)
    work = client.beta.environments.work
    with at_work(program, stack, session.environment_id, key):
        send(client, session.id, "work")
        log = stack.until_idle(client, session.id)
        where = as_worker(stack, key).beta.environments.work
        (item,) = where.list(session.environment_id).data
        assert work.stats(session.environment_id).workers_polling == 1

        def over() -> bool:
            kept = work.retrieve(item.id, environment_id=session.environment_id)
            return kept.state == "stopped"

        stack.wait_for(over, "the end of the item")
    assert texts(log, "agent.message") == ["all done"]
    (told,) = texts(log, "user.tool_result")
    assert "ANTHROPIC_WORK_SECRET" in told
    assert "ANTHROPIC_ENVIRONMENT_KEY" not in told
    assert told.strip().endswith(str(tmp_path))


def test_a_key_opens_its_environments_queue_and_sessions_and_nothing_else(
    stack: Stack, client: Anthropic
) -> None:
    mine, other = (new_session(client, self_hosted=True) for _ in range(2))
    worker = as_worker(stack, new_key(stack, mine.environment_id)["key"])
    assert worker.beta.sessions.retrieve(mine.id).id == mine.id
    assert history(worker, mine.id) == []
    with pytest.raises(NotFoundError) as hidden:
        worker.beta.sessions.retrieve(other.id)
    with pytest.raises(NotFoundError) as missing:
        worker.beta.sessions.retrieve("sesn_nowhere")
    assert (
        hidden.value.message.replace(other.id, "sesn_nowhere").split("req_")[0]
        == (missing.value.message.split("req_")[0])
    )
    with pytest.raises(NotFoundError):
        worker.beta.environments.work.poll(other.environment_id)
    for refused in (
        worker.beta.sessions.list,
        lambda: worker.beta.sessions.archive(mine.id),
        worker.beta.agents.list,
        lambda: worker.beta.environments.retrieve(mine.environment_id),
        lambda: worker.beta.environments.work.stats(mine.environment_id),
        lambda: worker.beta.sessions.events.send(mine.id, events=[user_message("hello")]),
        lambda: client.beta.environments.work.poll(mine.environment_id),
        lambda: client.beta.environments.work.list(mine.environment_id),
    ):
        with pytest.raises(PermissionDeniedError):
            refused()


def test_a_work_items_token_opens_its_session_until_the_item_has_stopped(
    stack: Stack, client: Anthropic
) -> None:
    stack.model.script(tools(ToolUse("bash", {"command": "true"})))
    session, other = new_session(client, self_hosted=True), new_session(client, self_hosted=True)
    send(client, session.id, "work")
    worker = as_worker(stack, new_key(stack, session.environment_id)["key"])
    work = poll(stack, worker, session.environment_id)
    assert work.data.id == session.id
    padded = work.secret + "=" * (-len(work.secret) % 4)
    token = json.loads(base64.urlsafe_b64decode(padded))["sessions_token"]
    held = as_worker(stack, token)
    items = worker.beta.environments.work
    items.ack(work.id, environment_id=work.environment_id)
    beat = held.beta.environments.work.heartbeat(
        work.id, environment_id=work.environment_id, expected_last_heartbeat="NO_HEARTBEAT"
    )
    assert beat.state == "active"
    assert held.beta.sessions.retrieve(session.id).id == session.id
    with pytest.raises(NotFoundError):
        held.beta.sessions.retrieve(other.id)
    with pytest.raises(PermissionDeniedError):
        held.beta.environments.work.poll(work.environment_id)
    with pytest.raises(PermissionDeniedError):
        held.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])

    # The work may be there before the message was taken, which the interrupt is to end.
    stack.wait_for(lambda: history(client, session.id, types=["agent.tool_use"]), "the call")
    client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    stack.wait_for(lambda: ended(client, session.id), "the end of the turn")
    client.beta.environments.work.stop(work.id, environment_id=work.environment_id, force=True)
    with pytest.raises(AuthenticationError):
        held.beta.sessions.retrieve(session.id)


def test_a_revoked_key_opens_nothing_from_that_moment_on(stack: Stack, client: Anthropic) -> None:
    session = new_session(client, self_hosted=True)
    made = new_key(stack, session.environment_id)
    worker = as_worker(stack, made["key"])
    assert worker.beta.environments.work.poll(session.environment_id) is None
    path = f"{stack.url}/v1/environments/{session.environment_id}/keys/{made['id']}"
    assert httpx2.delete(path, headers=stack.headers, timeout=60).json()["revoked_at"]
    with pytest.raises(AuthenticationError) as refused:
        worker.beta.environments.work.poll(session.environment_id)
    assert made["key"] not in str(refused.value)
    again = as_worker(stack, new_key(stack, session.environment_id)["key"])
    client.beta.environments.archive(session.environment_id)  # its sessions go on
    assert again.beta.environments.work.poll(session.environment_id) is None
    client.beta.environments.delete(session.environment_id)
    with pytest.raises(AuthenticationError):
        again.beta.environments.work.poll(session.environment_id)


def test_no_file_of_the_installation_has_a_key(stack: Stack, client: Anthropic) -> None:
    session = new_session(client, self_hosted=True)
    key = new_key(stack, session.environment_id)["key"]
    as_worker(stack, key).beta.sessions.retrieve(session.id)
    with pytest.raises(AuthenticationError):
        as_worker(stack, f"{key}x").beta.sessions.retrieve(session.id)
    secret = key.removeprefix("drover_env_").encode()
    assert stack.files_with(secret) == []
