"""What is promised of objects that rows refer to: no row without bytes, no bytes without a row."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from services.registry.store.objects.kept import SETTLING, STORING, KeptObjects
from services.registry.store.objects.uses import hold, let_go
from storage.objects import ObjectsAway
from tests.contract.registry.files import Clock, pieces
from tests.doubles.hands_waiting import eventually
from tests.doubles.objects import MemoryObjects

if TYPE_CHECKING:
    from storage import Database

DIGEST = hashlib.sha256(b"some bytes").hexdigest()


@pytest.fixture
def databases(emptied: list[Database]) -> list[Database]:
    return emptied


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def kept(store: MemoryObjects, databases: list[Database], clock: Clock) -> KeptObjects:
    return KeptObjects(store, databases[0], clock, new_id)


async def stored(kept: KeptObjects, database: Database, uses: int = 1) -> str:
    async with kept.stored("files", pieces(b"some ", b"bytes")) as name:
        for _ in range(uses):
            await database.write(partial(hold, name=name))
    return name


async def read(kept: KeptObjects, name: str) -> bytes:
    async with aclosing(kept.read(name, 10, DIGEST)) as reading:
        return b"".join([piece async for piece in reading])


async def let(kept: KeptObjects, database: Database, clock: Clock, name: str) -> None:
    now = int(clock.now().timestamp() * 1_000_000)
    await database.write(partial(let_go, names=[name], now=now))
    await kept.sweep()


async def test_an_object_goes_with_the_last_row_that_refers_to_it(
    kept: KeptObjects, databases: list[Database], store: MemoryObjects, clock: Clock
) -> None:
    name = await stored(kept, databases[0], uses=2)
    clock.at += 2 * STORING
    await let(kept, databases[0], clock, name)
    assert await read(kept, name) == b"some bytes"
    await let(kept, databases[0], clock, name)
    assert store.objects == {}
    with pytest.raises(DroverError) as late:
        await databases[0].write(partial(hold, name=name))
    assert late.value.reason is Reason.UNAVAILABLE


async def test_what_nobody_counted_goes_when_its_time_is_over(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, databases: list[Database]
) -> None:
    async with kept.stored("files", pieces(b"x")):
        pass  # as of a process that dies here
    await kept.sweep()
    assert len(store.objects) == 1
    clock.at += STORING
    await KeptObjects(store, databases[-1], clock, new_id).sweep()  # another process's
    assert store.objects == {}


@pytest.mark.parametrize("where", ["pieces", "body"])
async def test_an_object_whose_storing_fails_is_deleted_once_it_has_settled(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, where: str
) -> None:
    with pytest.raises(LookupError, match="broken off"):
        async with kept.stored(
            "files", pieces(b"x", fail=LookupError("broken off") if where == "pieces" else None)
        ):
            raise LookupError("broken off")
    assert len(store.objects) == (where == "body")
    await kept.sweep()
    clock.at += SETTLING
    await kept.sweep()
    assert store.objects == {}
    assert store.deleted  # even where it seemed not to be there: it could have come to be


async def test_an_object_that_was_counted_stays_though_its_caller_was_told_otherwise(
    kept: KeptObjects, clock: Clock, databases: list[Database]
) -> None:
    with suppress(LookupError):
        async with kept.stored("files", pieces(b"some bytes")) as name:
            await databases[0].write(partial(hold, name=name))
            raise LookupError
    clock.at += 2 * STORING
    await kept.sweep()
    assert await read(kept, name) == b"some bytes"


async def test_what_is_being_read_stays_until_it_was_read(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, databases: list[Database]
) -> None:
    name = await stored(kept, databases[0])
    async with aclosing(kept.read(name, 10, DIGEST)) as reading:
        await anext(reading)
        await let(kept, databases[0], clock, name)
        assert [*store.objects] == [name]
    await kept.sweep()
    assert store.objects == {}


async def test_a_store_that_fails_is_told_and_keeps_nothing_from_being_deleted_later(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, databases: list[Database]
) -> None:
    name = await stored(kept, databases[0])
    store.failing = "No space left on device (error 28)"
    with pytest.raises(DroverError, match="No space left") as away:
        await stored(kept, databases[0])
    assert away.value.reason is Reason.UNAVAILABLE
    with pytest.raises(DroverError) as unread:
        await read(kept, name)
    assert unread.value.reason is Reason.UNAVAILABLE
    with pytest.raises(ObjectsAway, match="No space left"):
        await let(kept, databases[0], clock, name)
    store.failing = ""
    await kept.sweep()
    assert store.objects == {}


async def test_an_object_is_deleted_as_soon_as_it_is_said_that_there_is_one(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, databases: list[Database]
) -> None:
    name = await stored(kept, databases[0])
    sweeping = asyncio.create_task(kept.run())
    now = int(clock.now().timestamp() * 1_000_000)
    await databases[0].write(partial(let_go, names=[name], now=now))
    kept.wake()
    await eventually(lambda: not store.objects)
    sweeping.cancel()


async def test_bytes_that_the_store_has_lost_or_changed_are_told(
    kept: KeptObjects, store: MemoryObjects, databases: list[Database]
) -> None:
    name = await stored(kept, databases[0])
    for there in ({name: b"same bytes"}, {name: b"some"}, {}):
        store.objects = there
        with pytest.raises(DroverError) as told:
            await read(kept, name)
        assert told.value.reason is Reason.INTERNAL
        assert name not in told.value.message


async def test_two_that_sweep_do_not_hinder_each_other(
    kept: KeptObjects, store: MemoryObjects, clock: Clock, databases: list[Database]
) -> None:
    for _ in range(3):
        async with kept.stored("files", pieces(b"x")):
            pass
    clock.at += STORING + timedelta(seconds=1)
    other = KeptObjects(store, databases[-1], clock, new_id)
    await asyncio.gather(kept.sweep(), other.sweep())
    assert store.objects == {}
