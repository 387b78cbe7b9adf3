"""The official worker serves sessions with skills and memory stores, by the item's token alone."""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import MODEL, TOOLSET, send, texts
from tests.e2e.skills import zipped_skill
from tests.e2e.stack import Stack
from tests.e2e.workers import Desk, desk


@pytest.fixture
def bench(stack: Stack, tmp_path: Path) -> Iterator[Desk]:
    with desk(stack, tmp_path) as opened:
        yield opened


def with_skill(bench: Desk, name: str, resources: list[Any]) -> Any:
    """A session whose agent has a skill."""
    made = bench.client.beta.skills.create(files=[zipped_skill(name)])
    agent = bench.client.beta.agents.create(
        name="clerk",
        model=MODEL,
        tools=[TOOLSET],  # type: ignore[list-item]
        skills=[{"type": "custom", "skill_id": made.id}],
    )
    return bench.client.beta.sessions.create(
        agent=agent.id, environment_id=bench.environment_id, resources=resources
    )


def test_the_stock_worker_serves_a_session_with_a_skill_and_memory(bench: Desk) -> None:
    client = bench.client
    name = f"Worker Notes {uuid.uuid4().hex}"
    store = client.beta.memory_stores.create(name=name, description="Kept between days")
    memories = client.beta.memory_stores.memories
    memories.create(store.id, path="/today.md", content="sums are due")
    session = with_skill(
        bench, "worker-sums", [{"type": "memory_store", "memory_store_id": store.id}]
    )
    (mounted,) = session.resources
    note = f"{mounted.mount_path}/today.md"  # on the worker's own machine, which is this one
    bench.stack.model.script(
        tools(
            ToolUse("bash", {"command": "printf abc | skills/worker-sums/scripts/digest"}),
            ToolUse("bash", {"command": f"cat {note}; printf ' today' >>{note}"}),
        ),
        text("done"),
    )
    bench.worker()
    send(client, session.id, "work")
    log = bench.stack.until_idle(client, session.id)
    counted, read = texts(log, "user.tool_result")
    assert counted.strip() == "3 bytes"
    assert "sums are due" in read
    system = str(bench.stack.model.requests[-1].body["system"])
    assert "skills/worker-sums/SKILL.md" in system
    assert str(mounted.mount_path) in system

    def synced() -> bool:
        (memory,) = memories.list(store.id, view="full")
        return bool(memory.type == "memory" and memory.content == "sums are due today")

    bench.stack.wait_for(synced, "what the worker has noted", 30)
    shutil.rmtree(str(mounted.mount_path), ignore_errors=True)
    newest = next(iter(client.beta.memory_stores.memory_versions.list(store.id)))
    assert getattr(newest.created_by, "session_id", None) == session.id


def test_a_workers_token_opens_its_sessions_skills_and_stores_alone(bench: Desk) -> None:
    client = bench.client
    mine = client.beta.memory_stores.create(name="Mine")
    rules = client.beta.memory_stores.create(name="Rules")
    foreign = client.beta.memory_stores.create(name="Foreign")
    for store in (mine, rules, foreign):
        client.beta.memory_stores.memories.create(store.id, path="/a", content="x")
    other = client.beta.skills.create(files=[zipped_skill("foreign-sums")])
    resources: Any = [
        {"type": "memory_store", "memory_store_id": mine.id},
        {"type": "memory_store", "memory_store_id": rules.id, "access": "read_only"},
    ]
    session = with_skill(bench, "own-sums", resources)
    bench.stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("done"))
    send(client, session.id, "work")
    bench.stack.wait_for(bench.work, "the session's work")
    (item,) = bench.claimed()
    token = json.loads(base64.urlsafe_b64decode(item.secret + "=="))["sessions_token"]
    worker = client.with_options(api_key=token)
    (skill,) = session.agent.skills
    assert worker.beta.skills.versions.retrieve(skill.version, skill_id=skill.skill_id)
    memories = worker.beta.memory_stores.memories
    memories.create(mine.id, path="/b", content="y")
    assert [one.path for one in memories.list(rules.id)] == ["/a"]
    refused: list[Any] = [
        lambda: memories.create(rules.id, path="/b", content="y"),
        lambda: memories.list(foreign.id),
        lambda: memories.create(foreign.id, path="/b", content="y"),
        lambda: worker.beta.memory_stores.memory_versions.list(mine.id),
        lambda: worker.beta.memory_stores.delete(mine.id),
        lambda: worker.beta.skills.versions.retrieve("latest", skill_id=other.id),
        worker.beta.skills.list,
        worker.beta.files.list,
    ]
    for call in refused:
        with pytest.raises((anthropic.NotFoundError, anthropic.PermissionDeniedError)):
            call()
    environment_key = client.with_options(api_key=bench.key)
    with pytest.raises(anthropic.PermissionDeniedError):
        environment_key.beta.memory_stores.memories.list(mine.id)
