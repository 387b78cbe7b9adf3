"""The history of a store, on both engines: what it tells, for how long, and to followers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.memory.v1.memory_pb2 import (
    MEMORY_OPERATION_CREATED,
    MEMORY_OPERATION_DELETED,
    MEMORY_OPERATION_MODIFIED,
)
from drover.memory.v1.memory_service_pb2 import StorePosition
from services.registry.domain.memory.memory import KEPT_VERSIONS, Origin, digest
from services.registry.store.memory import expiry, following, rows
from tests.doubles.registry_memory import (
    ELSEWHERE,
    HOME,
    NOON,
    MemoryReplica,
    key,
    session,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


async def test_every_change_tells_what_it_did_and_who_made_it(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/a", "1", session("1"))
    changed = await replica.change(made, key("1"), content="2", at=NOON + timedelta(seconds=1))
    moved = await replica.change(made, path="/b", at=NOON + timedelta(seconds=2))
    await replica.delete(made, session("2"), at=NOON)  # by a clock that is behind
    deleted, third, second, first = await replica.history(store_id)
    assert [one.operation for one in (first, second, third, deleted)] == [
        MEMORY_OPERATION_CREATED,
        MEMORY_OPERATION_MODIFIED,
        MEMORY_OPERATION_MODIFIED,
        MEMORY_OPERATION_DELETED,
    ]
    assert ids([first, second, third]) == [one.memory_version_id for one in (made, changed, moved)]
    told = [(one.path, one.content, one.content_sha256) for one in (first, second, third)]
    assert told == [("/a", "1", digest("1")), ("/a", "2", digest("2")), ("/b", "2", digest("2"))]
    assert deleted.path == "/b"
    for field in ("content", "content_sha256", "content_size_bytes", "redacted_at", "redacted_by"):
        assert not deleted.HasField(field)
    assert (first.created_by, second.created_by) == (session("1"), key("1"))
    assert not third.HasField("created_by")
    assert deleted.created_by == session("2")
    assert deleted.created_at == third.created_at == moved.updated_at
    assert {one.memory_id for one in (first, second, third, deleted)} == {made.id}
    assert await replica.versions.get(HOME, store_id, first.id) == first


async def test_the_history_is_filtered_and_paged(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    one = await replica.add(store_id, "/1", "1", session("a"))
    two = await replica.add(store_id, "/2", "1", key("a"))
    later = NOON + timedelta(hours=1)
    await replica.change(one, key("a"), content="2", at=later)
    await replica.change(two, session("b"), content="2", at=later)
    everything = await replica.history(store_id)

    async def found(**fields: Any) -> list[int]:
        """Places in the whole history."""
        kept = await replica.history(store_id, **fields)
        return [everything.index(version) for version in kept]

    assert await found() == [0, 1, 2, 3]
    assert await found(memory_id=one.id) == [1, 3]
    assert await found(session_id="sesn_a") == [3]
    assert await found(api_key_id="apikey_a") == [1, 2]
    assert await found(api_key_id="sesn_a") == []
    assert await found(session_id="sesn_a", api_key_id="apikey_a") == []
    assert await found(operation=MEMORY_OPERATION_CREATED) == [2, 3]
    assert await found(created_from=micros(later)) == [0, 1]
    assert await found(created_to=micros(later) - 1) == [2, 3]
    assert await found(limit=2) == [0, 1]
    assert await found(before=3) == [2, 3]


async def test_redacted_versions_say_nothing_but_who_and_when(replica: MemoryReplica) -> None:
    store_id = await replica.store()
    made = await replica.add(store_id, "/secret", "canary-of-redaction", session("1"))
    with pytest.raises(DroverError, match="present content") as live:
        await replica.versions.redact(HOME, store_id, made.memory_version_id, Origin(None, NOON))
    assert live.value.rule.http == 400
    await replica.delete(made)
    deletion, creation = await replica.history(store_id)
    by = Origin(key("1"), NOON)
    for version in (deletion, creation):
        redacted = await replica.versions.redact(HOME, store_id, version.id, by)
        for field in ("path", "content", "content_sha256", "content_size_bytes"):
            assert not redacted.HasField(field)
        assert redacted.redacted_by == key("1")
        assert redacted.redacted_at.ToDatetime(NOON.tzinfo) == NOON
        for field in ("created_at", "created_by", "operation", "memory_id"):
            assert getattr(redacted, field) == getattr(version, field)
        again = Origin(key("2"), NOON + timedelta(hours=1))
        assert await replica.versions.redact(HOME, store_id, version.id, again) == redacted
        assert await replica.versions.get(HOME, store_id, version.id) == redacted


async def test_old_versions_go_but_the_newest_and_those_of_the_last_days_stay(
    replica: MemoryReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KEPT_VERSIONS == 100
    monkeypatch.setattr(rows, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(expiry, "BATCH", 1)
    store_id = await replica.store()
    recent = NOON + timedelta(days=20)
    kept = await replica.add(store_id, "/kept", "1")
    for number, at in enumerate((NOON, NOON, recent, recent, recent)):
        await replica.change(kept, content=f"{number}.", at=at)
    gone = await replica.add(store_id, "/gone")
    await replica.delete(gone, at=recent)
    everything = await replica.history(store_id)
    assert len(everything) == 8

    async def left(days: int) -> list[int]:
        await replica.expire(NOON + timedelta(days=days) - datetime.now(UTC))
        return [everything.index(version) for version in await replica.history(store_id)]

    assert await left(29) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert await left(31) == [0, 1, 2, 3, 4]
    assert await left(51) == [2, 3]
    assert (await replica.read(kept)).content == "4."


async def test_a_follower_learns_each_change_and_nothing_else(replica: MemoryReplica) -> None:
    store_id, other = await replica.store(), await replica.store()
    assert not (await replica.follow(store_id)).ListFields()
    one, two = await replica.add(store_id, "/1"), await replica.add(store_id, "/2")
    changes = await replica.follow(store_id)
    assert (changes.revision, list(changes.memories), changes.more) == (2, [one, two], False)
    assert (await replica.follow(store_id, 2)).ListFields() == [
        (changes.DESCRIPTOR.fields_by_name["revision"], 2)
    ]
    changed = await replica.change(one, content="new")
    await replica.delete(two)
    changes = await replica.follow(store_id, 2)
    assert (changes.revision, list(changes.memories)) == (4, [changed])
    assert list(changes.deleted_ids) == [two.id]
    # Who is ahead, of a database that was put back, is told all there is.
    assert list((await replica.follow(store_id, 9)).memories) == [changed]
    # Whoever knows nothing need not be told what is no more.
    assert not (await replica.follow(store_id)).deleted_ids
    positions = [
        StorePosition(memory_store_id=other),
        StorePosition(memory_store_id="memstore_none", revision=7),
        StorePosition(memory_store_id=store_id, revision=3),
    ]
    empty, unknown, last = await replica.memories.follow(HOME, positions)
    assert (empty.revision, empty.gone) == (0, False)
    assert (unknown.revision, unknown.gone) == (7, True)
    assert list(last.deleted_ids) == [two.id]
    assert all(told.gone for told in await replica.memories.follow(ELSEWHERE, positions))


async def test_a_follower_is_told_much_bit_by_bit(
    replica: MemoryReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_id = await replica.store()
    made = [await replica.add(store_id, f"/{number}", "x" * 3000) for number in range(5)]
    monkeypatch.setattr(following, "MOST_BYTES", 10_000)
    monkeypatch.setattr(following, "MOST_DELETIONS", 2)
    first = await replica.follow(store_id)
    assert (first.revision, first.more, list(first.memories)) == (2, True, made[:2])
    for memory in made[1:]:
        await replica.delete(memory)
    seen, deleted, since, turns = [first.memories[0]], [], first.revision, 0
    while True:
        changes = await replica.follow(store_id, since)
        assert changes.revision > since
        seen += list(changes.memories)
        deleted += list(changes.deleted_ids)
        since, turns = changes.revision, turns + 1
        if not changes.more:
            break
    assert (seen, sorted(deleted), since) == ([made[0]], sorted(ids(made[1:])), 9)
    assert turns == 2


async def test_of_writers_at_one_place_exactly_one_wins(replicas: list[MemoryReplica]) -> None:
    store_id = await replicas[0].store()

    async def together(*calls: Any) -> tuple[list[Any], list[str]]:
        """What those that won got, and the codes of the others."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        won = [one for one in results if not isinstance(one, BaseException)]
        codes = [one.metadata["error_code"] for one in results if isinstance(one, DroverError)]
        assert len(won) + len(codes) == len(results)
        return won, codes

    paths = ["/a", "/a/b", "/a/b/c", "/a"]
    writes = [replicas[at % 2].add(store_id, path) for at, path in enumerate(paths)]
    [made], lost = await together(*writes)
    assert lost == ["memory_path_conflict_error"] * 3
    changes = [
        replicas[at % 2].change(made, content=str(at), expected=made.content_sha256)
        for at in range(4)
    ]
    [changed], lost = await together(*changes)
    assert lost == ["memory_precondition_failed_error"] * 3
    assert await replicas[0].read(made) == changed

    # Without a condition all win, one after the other, and no revision is lost or made twice.
    others = [await replicas[0].add(store_id, f"/other/{at}") for at in range(4)]
    edits = [replicas[at % 2].change(one, content="new") for at, one in enumerate(others)]
    won, _ = await together(*edits, replicas[1].delete(made))
    assert len(won) == 5
    assert len(await replicas[0].history(store_id)) == 11
    changes_told = await replicas[1].follow(store_id, 6)
    assert changes_told.revision == 11
    assert sorted(ids(changes_told.memories)) == sorted(ids(others))
    assert list(changes_told.deleted_ids) == [made.id]


async def test_paths_are_ordered_by_code_points_whatever_the_database_speaks(
    replica: MemoryReplica, request: pytest.FixtureRequest
) -> None:
    if "postgres" not in request.node.name:
        return
    query = (
        "SELECT collation_name FROM information_schema.columns"
        " WHERE table_name = 'memories' AND column_name = 'path'"
    )
    found = await replica.database.read(
        lambda connection: connection.exec_driver_sql(query).scalar()
    )
    assert found == "C"


async def test_versions_of_an_unknown_store_are_not_found(replica: MemoryReplica) -> None:
    with pytest.raises(DroverError) as missing:
        await replica.history("memstore_none")
    assert missing.value.reason is Reason.NOT_FOUND
