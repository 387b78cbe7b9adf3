"""Memories of a store, on both engines: where they may lie, and how they are listed."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from catalogue.resources.once import Once
from chassis.errors import DroverError, Reason
from drover.memory.v1.memory_pb2 import Memory
from services.registry.domain.memory.memory import Origin
from services.registry.domain.memory.ports import MemoryListing
from services.registry.store.memory import memories as module
from services.registry.store.tables import METADATA
from tests.doubles.registry_memory import (
    ELSEWHERE,
    HOME,
    NOON,
    MemoryReplica,
    a_change,
    a_memory,
    key,
    session,
)
from tests.doubles.request_keys import named

pytestmark = pytest.mark.asyncio(loop_scope="module")


def sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def once(name: str, kind: Any = Memory) -> Once[Any]:
    return Once(named(name), lambda result: result.SerializeToString(), kind.FromString)


async def conflict(call: Any) -> dict[str, str]:
    """What a call that is refused as a conflict tells of it."""
    with pytest.raises(DroverError) as refused:
        await call
    assert refused.value.reason is Reason.CONFLICT
    return refused.value.metadata


@pytest.mark.parametrize("content", ["text", "", "\0 \u2028 \U0001f642 e\u0301 \r\n"])
async def test_content_is_kept_byte_for_byte(replica: MemoryReplica, content: str) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a", content)
    assert made.content_sha256 == sha(content)
    assert made.content_size_bytes == len(content.encode())
    assert made.created_at.ToDatetime(NOON.tzinfo) == NOON
    assert await replica.read(made) == made
    assert made.content == content


async def test_a_path_is_taken_with_all_above_and_below_it(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a/b")
    await replica.add(store_id, "/a.b")
    await replica.add(store_id, "/a/b0")
    await replica.add(store_id, "/A/b/c")  # another case, another path
    for path in ("/a", "/a/b", "/a/b/c", "/a/b/c/d"):
        told = await conflict(replica.add(store_id, path))
        assert told["error_code"] == "memory_path_conflict_error"
        assert told["conflicting_path"] in {"/a/b", "/a/b0"}
    assert told["conflicting_memory_id"] == made.id
    other = await replica.add(await replica.store(), "/a/b")
    assert other.path == made.path


async def test_a_memory_moves_with_its_id_even_below_itself_and_not_onto_others(
    replica: MemoryReplica,
) -> None:
    store_id = await replica.store()
    made, other = await replica.add(store_id, "/a"), await replica.add(store_id, "/b/c")
    for path in ("/b", "/b/c", "/b/c/d"):
        told = await conflict(replica.change(made, path=path))
        assert told["conflicting_memory_id"] == other.id
    moved = await replica.change(made, path="/a/deeper", by=key("k"))
    assert (moved.id, moved.path, moved.content) == (made.id, "/a/deeper", "text")
    assert await replica.read(made) == moved
    back = await replica.change(moved, path="/a", content="new")
    assert (await replica.read(made)).content == back.content == "new"
    assert await replica.listed(store_id) == ["/a", "/b/c"]


async def test_what_changes_nothing_makes_no_version(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a")
    later = NOON + timedelta(hours=1)
    same: list[dict[str, Any]] = [
        {},
        {"content": "text"},
        {"path": "/a"},
        {"path": "/a", "content": "text"},
    ]
    for change in same:
        assert await replica.change(made, at=later, **change) == made
    assert len(await replica.history(store_id)) == 1
    assert (await replica.follow(store_id)).revision == 1


async def test_a_precondition_is_about_the_present_content(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a", "1")
    changed = await replica.change(made, content="2", expected=sha("1"))
    stale: Any
    for stale in (
        replica.change(made, content="3", expected=sha("1")),
        replica.change(made, content="2", expected=sha("1")),  # even where nothing would change
        replica.change(made, path="/b", expected=sha("3")),
        replica.delete(made, expected=sha("1")),
    ):
        told = await conflict(stale)
        assert told["error_code"] == "memory_precondition_failed_error"
    assert await replica.read(made) == changed
    await replica.delete(made, expected=sha("2"))
    with pytest.raises(DroverError) as gone:
        await replica.change(made, content="3")
    assert gone.value.reason is Reason.NOT_FOUND


async def test_a_store_holds_so_many_memories_and_not_one_more(
    replica: MemoryReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MEMORIES", 2)
    store_id = await replica.store()
    first = await replica.add(store_id, "/1")
    await replica.add(store_id, "/2")
    with pytest.raises(DroverError, match="which is the most") as full:
        await replica.add(store_id, "/3")
    assert full.value.rule.http == 400
    await replica.change(first, content="no more memories by that")
    await replica.delete(first)
    await replica.add(store_id, "/3")


async def test_nothing_is_seen_or_changed_from_another_workspace_or_store(
    replica: MemoryReplica,
) -> None:
    store_id, other = await replica.store(), await replica.store()
    made = await replica.add(store_id, "/a")
    version_id = made.memory_version_id
    for workspace, place in ((ELSEWHERE, store_id), (HOME, other)):
        for call in (
            replica.memories.get(workspace, place, made.id),
            replica.memories.change(workspace, place, made.id, a_change(content="x")),
            replica.memories.delete(workspace, place, made.id, a_change()),
            replica.versions.get(workspace, place, version_id),
            replica.versions.redact(workspace, place, version_id, Origin(None, NOON)),
        ):
            with pytest.raises(DroverError) as unseen:
                await call
            assert unseen.value.reason is Reason.NOT_FOUND
    with pytest.raises(DroverError):
        await replica.memories.add(ELSEWHERE, a_memory(store_id, "/b"), Origin(None, NOON))
    assert await replica.read(made) == made
    assert await replica.listed(other) == []


async def test_lists_are_in_the_order_of_code_points_whole_or_by_directory(
    replica: MemoryReplica,
) -> None:
    store_id = await replica.store()
    paths = [
        "/B",
        "/a b",
        "/a.md",
        "/a/1",
        "/a/b/2",
        "/a/c",
        "/a0",
        "/b",
        "/\u00e9",
        "/\uff5e",
        "/\U0001f642",
    ]
    for path in reversed(paths):
        await replica.add(store_id, path, path)
    assert await replica.listed(store_id) == paths
    assert await replica.listed(store_id, directory="/a/") == ["/a/1", "/a/b/2", "/a/c"]
    assert await replica.listed(store_id, directory="/b/") == []
    top = ["/B", "/a b", "/a.md", "/a/", "/a0", "/b", "/\u00e9", "/\uff5e", "/\U0001f642"]
    assert await replica.listed(store_id, children_only=True) == top
    inner = await replica.listed(store_id, directory="/a/", children_only=True)
    assert inner == ["/a/1", "/a/b/", "/a/c"]
    for wanted, fields in (
        (paths, {}),
        (top, {"children_only": True}),
        (inner, {"directory": "/a/", "children_only": True}),
    ):
        seen: list[str] = []
        while page := await replica.listed(store_id, 2, after=seen[-1] if seen else None, **fields):
            seen += page
        assert seen == wanted


async def test_a_list_has_content_when_asked(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a/b")
    lean = Memory()
    lean.CopyFrom(made)
    lean.ClearField("content")
    for children_only, directory in ((False, "/"), (True, "/a/")):
        for with_content, wanted in ((False, lean), (True, made)):
            listing = MemoryListing(9, directory, children_only, None, with_content)
            [item] = await replica.memories.page(HOME, store_id, listing)
            assert item.memory == wanted


async def test_a_repeated_write_gets_the_first_answer_of_which_no_text_is_kept(
    replica: MemoryReplica,
) -> None:
    store_id = await replica.store()
    origin = Origin(session("1"), NOON)
    first, again = a_memory(store_id, "/secret", "canary"), a_memory(store_id, "/secret", "canary")
    made = await replica.memories.add(HOME, first, origin, once(store_id))
    changed = await replica.change(made, content="later")
    call = once(store_id)
    assert await replica.memories.add(HOME, again, origin, call) == made
    assert call.replayed
    assert await replica.read(made) == changed
    kept = [row.answer for row in await replica.kept(METADATA.tables["answers"])]
    assert kept
    assert not [answer for answer in kept if b"canary" in answer or b"/secret" in answer]
    await replica.versions.redact(HOME, store_id, made.memory_version_id, origin)
    with pytest.raises(DroverError, match="redacted since") as redacted:
        await replica.memories.add(HOME, again, origin, once(store_id))
    assert redacted.value.reason is Reason.NOT_FOUND
    for _ in range(2):
        deletion: Once[str] = Once(named(f"{store_id}d"), str.encode, bytes.decode)
        await replica.memories.delete(HOME, store_id, made.id, a_change(), deletion)
    assert deletion.replayed
