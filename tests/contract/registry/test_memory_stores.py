"""Stores of memory, on both engines: what becomes of them, and of what is in them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from catalogue.resources.once import Once
from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.memory.v1.memory_pb2 import MemoryStore
from services.registry.domain.memory.definition import archived_memory_store
from services.registry.domain.memory.memory import Origin
from services.registry.domain.ports import Listing
from services.registry.store.memory import expiry, tables
from tests.doubles.registry_memory import ELSEWHERE, HOME, NOON, MemoryReplica, a_change, a_store
from tests.doubles.request_keys import named

pytestmark = pytest.mark.asyncio(loop_scope="module")


def archiving(at: timedelta = timedelta()) -> Callable[[MemoryStore], MemoryStore]:
    return lambda stored: archived_memory_store(stored, NOON + at)


async def test_what_was_added_is_read_back_whole_and_only_at_home(replica: MemoryReplica) -> None:
    made = a_store(description="d\0", metadata={"k": "v"})
    assert await replica.stores.add(HOME, made) == made
    assert await replica.stores.get(HOME, made.id) == made
    with pytest.raises(DroverError) as unseen:
        await replica.stores.get(ELSEWHERE, made.id)
    with pytest.raises(DroverError) as unknown:
        await replica.stores.get(HOME, "memstore_none")
    assert unseen.value.reason is unknown.value.reason is Reason.NOT_FOUND


async def test_lists_are_newest_first_in_pages_with_the_archived_when_asked(
    replica: MemoryReplica,
) -> None:
    workspace = "wrkspc_lists"
    made = [await replica.stores.add(workspace, a_store()) for _ in range(4)]
    await replica.stores.revise(workspace, made[1].id, archiving())
    await replica.stores.delete(workspace, made[3].id)
    first = await replica.stores.page(workspace, Listing(1))
    assert list(first) == [made[2]]
    after = Position(micros(made[2].created_at), made[2].id)
    assert list(await replica.stores.page(workspace, Listing(9, after))) == [made[0]]
    both = await replica.stores.page(workspace, Listing(9, after, include_archived=True))
    assert [store.id for store in both] == [made[1].id, made[0].id]
    since = Listing(9, created_from=micros(made[2].created_at))
    assert list(await replica.stores.page(workspace, since)) == [made[2]]


async def test_an_archived_store_is_read_and_cleared_and_not_written(
    replica: MemoryReplica,
) -> None:
    store_id = await replica.store()
    old, new = await replica.add(store_id, "/old"), await replica.add(store_id, "/new")
    await replica.change(old, content="later")
    archived = await replica.stores.revise(HOME, store_id, archiving())
    assert archived.archived_at.ToDatetime(NOON.tzinfo) == NOON
    assert archived.updated_at == archived.archived_at
    assert await replica.stores.revise(HOME, store_id, archiving(timedelta(hours=1))) == archived
    for write in (replica.add(store_id, "/more"), replica.change(old, content="no")):
        with pytest.raises(DroverError) as refused:
            await write
        assert refused.value.reason is Reason.ARCHIVED
    first = (await replica.history(store_id, memory_id=old.id))[-1]
    await replica.versions.redact(HOME, store_id, first.id, Origin(None, NOON))
    await replica.delete(new)
    assert await replica.listed(store_id) == ["/old"]
    assert (await replica.follow(store_id, 1)).archived
    await replica.stores.delete(HOME, store_id)


async def test_changes_of_memories_are_none_of_their_store(replica: MemoryReplica) -> None:
    made = await replica.stores.add(HOME, a_store())
    await replica.add(made.id, "/a")
    assert await replica.stores.get(HOME, made.id) == made


async def test_a_deleted_store_is_gone_with_all_that_was_in_it_however_much(
    replica: MemoryReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "BATCH", 2)
    store_id = await replica.store(name="Secret")
    memory = await replica.add(store_id, "/a", "1")
    for content in "2345":
        await replica.change(memory, content=content)
    await replica.stores.delete(HOME, store_id)
    for call in (
        replica.stores.get(HOME, store_id),
        replica.stores.delete(HOME, store_id),
        replica.read(memory),
        replica.add(store_id, "/b"),
        replica.listed(store_id),
        replica.history(store_id),
        replica.versions.get(HOME, store_id, memory.memory_version_id),
        replica.memories.delete(HOME, store_id, memory.id, a_change()),
    ):
        with pytest.raises(DroverError) as gone:
            await call
        assert gone.value.reason is Reason.NOT_FOUND
    assert (await replica.follow(store_id, 1)).gone
    [left] = [row for row in await replica.kept(tables.MEMORY_STORES) if row.id == store_id]
    assert left.definition == b""
    await replica.expire(timedelta())
    for table, column in ((tables.MEMORY_STORES, "id"), (tables.MEMORY_VERSIONS, "store_id")):
        assert store_id not in {getattr(row, column) for row in await replica.kept(table)}


async def test_stores_are_made_and_deleted_once(replica: MemoryReplica) -> None:
    def once() -> Once[MemoryStore]:
        return Once(named("a store"), MemoryStore.SerializeToString, MemoryStore.FromString)

    made = await replica.stores.add(HOME, a_store(), once())
    again = once()
    assert await replica.stores.add(HOME, a_store(), again) == made
    assert again.replayed
    for _ in range(2):
        deletion: Once[str] = Once(named("its end"), str.encode, bytes.decode)
        await replica.stores.delete(HOME, made.id, deletion)
    assert deletion.replayed
    with pytest.raises(DroverError, match="was deleted since"):
        await replica.stores.add(HOME, a_store(), once())
