"""Memory stores, memories and their versions, by the official client with strict validation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, run_turn, send
from tests.e2e.stack import KEY, Stack

MEMORY_BETA = "agent-memory-2026-07-22"


@pytest.fixture
def client(stack: Stack) -> Iterator[Anthropic]:
    with stack.client(_strict_response_validation=True) as client:
        yield client


def sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def refusal(error: pytest.ExceptionInfo[Any]) -> dict[str, Any]:
    body: dict[str, Any] = error.value.body["error"]
    return body


def test_a_store_is_made_changed_listed_archived_and_deleted(client: Anthropic) -> None:
    stores = client.beta.memory_stores
    made = stores.create(name="Notes", description="Of the team", metadata={"team": "a"})
    assert (made.name, made.description, made.metadata) == ("Notes", "Of the team", {"team": "a"})
    assert stores.retrieve(made.id) == made
    changed = stores.update(made.id, description="", metadata={"team": None, "since": "2026"})
    assert (changed.name, changed.description) == ("Notes", "")
    assert changed.metadata == {"since": "2026"}
    assert made.id in [store.id for store in stores.list(created_at_gte=made.created_at)]
    archived = stores.archive(made.id)
    assert archived.archived_at is not None
    assert stores.archive(made.id) == archived
    assert made.id not in [store.id for store in stores.list()]
    assert made.id in [store.id for store in stores.list(include_archived=True)]
    with pytest.raises(anthropic.BadRequestError):
        stores.update(made.id, name="Other")
    with pytest.raises(anthropic.BadRequestError):
        stores.memories.create(made.id, path="/a", content="x")
    with pytest.raises(anthropic.BadRequestError):
        new_session(client, resources=[{"type": "memory_store", "memory_store_id": made.id}])
    assert stores.delete(made.id).id == made.id
    with pytest.raises(anthropic.NotFoundError):
        stores.retrieve(made.id)


def test_memories_have_paths_views_preconditions_and_a_history(client: Anthropic) -> None:
    store = client.beta.memory_stores.create(name="Notes")
    memories = client.beta.memory_stores.memories
    made = memories.create(store.id, path="/people/ase.md", content="likes sums")
    assert made.content is None
    assert (made.content_sha256, made.content_size_bytes) == (sha("likes sums"), 10)
    memories.create(store.id, path="/people/bo/likes.md", content="")
    memories.create(store.id, path="/readme.md", content="top", view="full")
    assert memories.retrieve(made.id, memory_store_id=store.id).content == "likes sums"
    listed: list[Any] = list(memories.list(store.id, depth=1))
    assert [(item.type, item.path) for item in listed] == [
        ("memory_prefix", "/people/"),
        ("memory", "/readme.md"),
    ]
    below: list[Any] = list(memories.list(store.id, path_prefix="/people/", view="full"))
    assert [item.content for item in below] == ["likes sums", ""]

    for path in ("/people/ase.md", "/people", "/people/ase.md/more"):
        with pytest.raises(anthropic.ConflictError) as taken:
            memories.create(store.id, path=path, content="x")
        assert refusal(taken)["type"] == "memory_path_conflict_error"
    for path in ("people", "/a/../b", "/a//b", "/" + "/".join("abcdefghijklmnopqrstu"), "/e\u0301"):
        with pytest.raises(anthropic.BadRequestError):
            memories.create(store.id, path=path, content="x")
    with pytest.raises(anthropic.BadRequestError):
        memories.create(store.id, path="/large", content="x" * 102_401)

    with pytest.raises(anthropic.ConflictError) as stale:
        memories.update(
            made.id,
            memory_store_id=store.id,
            content="lost",
            precondition={"type": "content_sha256", "content_sha256": sha("older")},
        )
    assert refusal(stale)["type"] == "memory_precondition_failed_error"
    moved = memories.update(
        made.id,
        memory_store_id=store.id,
        path="/people/aase.md",
        content="likes products",
        precondition={"type": "content_sha256", "content_sha256": sha("likes sums")},
    )
    assert (moved.id, moved.path) == (made.id, "/people/aase.md")
    same = memories.update(made.id, memory_store_id=store.id, content="likes products")
    assert same.memory_version_id == moved.memory_version_id
    with pytest.raises(anthropic.ConflictError):
        memories.delete(made.id, memory_store_id=store.id, expected_content_sha256=sha("x"))
    assert memories.delete(made.id, memory_store_id=store.id).id == made.id

    versions = client.beta.memory_stores.memory_versions
    history = list(versions.list(store.id, memory_id=made.id, view="full"))
    assert [version.operation for version in history] == ["deleted", "modified", "created"]
    assert [version.content for version in history] == [None, "likes products", "likes sums"]
    author: Any = history[0].created_by
    assert author.type == "api_actor"
    assert {one.id for one in versions.list(store.id, api_key_id=author.api_key_id)} >= {
        one.id for one in history
    }
    assert list(versions.list(store.id, session_id="sesn_unknown")) == []
    redacted = versions.redact(history[-1].id, memory_store_id=store.id)
    assert (redacted.content, redacted.path, redacted.content_sha256) == (None, None, None)
    assert redacted.redacted_by == author
    assert versions.retrieve(history[-1].id, memory_store_id=store.id) == redacted
    live = versions.list(store.id, operation="created", limit=1).data[0]
    assert live.path == "/readme.md"
    with pytest.raises(anthropic.BadRequestError):
        versions.redact(live.id, memory_store_id=store.id)


def test_one_of_the_two_beta_headers_opens_memory_and_both_do_not(
    stack: Stack, client: Anthropic
) -> None:
    store = client.beta.memory_stores.create(name="Notes")
    url = f"{stack.url}/v1/memory_stores/{store.id}"
    given = [MEMORY_BETA, stack.headers["anthropic-beta"]]
    statuses = [
        httpx2.get(url, headers={"x-api-key": KEY, **headers}, timeout=60).status_code
        for headers in (
            {"anthropic-beta": given[0]},
            {"anthropic-beta": given[1]},
            {"anthropic-beta": ",".join(given)},
            {},
        )
    ]
    assert statuses == [200, 200, 400, 404]


def bash(command: str) -> Any:
    return tools(ToolUse("bash", {"command": command}))


def result(events: list[Any]) -> Any:
    (found,) = [event for event in events if event.type == "agent.tool_result"]
    return found


def words(event: Any) -> str:
    return "\n".join(block.text for block in event.content)


def test_what_cannot_be_remembered_is_told_and_nothing_is_cut(
    stack: Stack, client: Anthropic
) -> None:
    store = client.beta.memory_stores.create(name="Notes")
    client.beta.memory_stores.memories.create(store.id, path="/kept.md", content="kept")
    session = new_session(client, resources=[{"type": "memory_store", "memory_store_id": store.id}])
    stack.model.script(
        bash("cd /mnt/memory/notes && head -c 102401 /dev/zero | tr '\\0' x >large.md"),
        text("done"),
    )
    failed = result(run_turn(client, session.id, "write"))
    assert failed.is_error
    assert "large.md" in words(failed)
    assert "102,400" in words(failed)
    (only,) = client.beta.memory_stores.memories.list(store.id)
    assert only.path == "/kept.md"
    # Told once: the next call is as good as any.
    stack.model.script(bash("cat /mnt/memory/notes/kept.md"), text("done"))
    fine = result(run_turn(client, session.id, "read"))
    assert (fine.is_error, words(fine)) == (False, "kept")


def test_a_read_only_store_cannot_be_written_to(stack: Stack, client: Anthropic) -> None:
    store = client.beta.memory_stores.create(name="Rules")
    client.beta.memory_stores.memories.create(store.id, path="/rule.md", content="be kind")
    given: Any = {"type": "memory_store", "memory_store_id": store.id, "access": "read_only"}
    session = new_session(client, resources=[given])
    stack.model.script(
        bash("cat /mnt/memory/rules/rule.md; echo x >/mnt/memory/rules/rule.md"), text("done")
    )
    failed = result(run_turn(client, session.id, "write"))
    assert failed.is_error
    assert "be kind" in words(failed)
    assert "Read-only" in words(failed)
    (only,) = client.beta.memory_stores.memories.list(store.id, view="full")
    assert getattr(only, "content", None) == "be kind"


def test_of_two_who_write_one_memory_the_one_that_comes_late_learns_it(own_stack: Stack) -> None:
    stack = own_stack
    with stack.client(_strict_response_validation=True) as client:
        store = client.beta.memory_stores.create(name="Notes")
        memories = client.beta.memory_stores.memories
        made = memories.create(store.id, path="/plan.md", content="first")
        session = new_session(
            client, resources=[{"type": "memory_store", "memory_store_id": store.id}]
        )
        stack.model.script(
            bash(
                "touch ready; until [ -e go ]; do sleep 0.05; done"
                "; printf mine >/mnt/memory/notes/plan.md; touch written"
            ),
            text("done"),
            bash("cat /mnt/memory/notes/plan.md"),
            text("done"),
        )
        send(client, session.id, "write")
        workspace = stack.workspace(session.id)
        stack.wait_for((workspace / "ready").exists, "the command to begin")
        stack.pause("hands")  # which look at the store every now and then
        memories.update(made.id, memory_store_id=store.id, content="theirs")
        (workspace / "go").touch()
        stack.wait_for((workspace / "written").exists, "the command to write")
        stack.resume("hands")
        late = result(stack.until_idle(client, session.id))
        assert late.is_error
        assert "plan.md" in words(late)
        assert memories.retrieve(made.id, memory_store_id=store.id).content == "theirs"
        assert words(result(run_turn(client, session.id, "read"))) == "theirs"
