"""What every record of checkpoints promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from services.hands.domain.checkpoint import Checkpoint, Checkpoints, Origin
from services.hands.store.checkpoints import SqlCheckpoints
from services.hands.store.schema import SCHEMA
from tests.doubles.databases import opened

HERE, NAMED, THERE = "sesn_1", "sesn_1@build", "sesn_2@theirs"


@pytest.fixture(params=["sqlite", "postgresql"])
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpoints]:
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster) as [database]:
        yield SqlCheckpoints(database, SystemClock())


def made(number: int, volume: str = "vol_1") -> Checkpoint:
    return Checkpoint(f"ckpt_{number}", f"object_{number}", volume, 10 + number, b"\0\xff" * 16)


async def take(rows: Checkpoints, where: str, number: int, origin: Origin) -> bool:
    checkpoint = made(number, origin.volume)
    before = await rows.begin(where, checkpoint.id, checkpoint.name, origin)
    return before is not None and await rows.commit(checkpoint, before)


async def to_delete(rows: Checkpoints) -> set[str]:
    return {one.name for one in await rows.to_delete(100)}


async def test_what_is_being_uploaded_does_not_count_yet(rows: Checkpoints) -> None:
    assert await rows.begin(HERE, "ckpt_1", "object_1", Origin("vol_1")) == ""
    assert await rows.newest(HERE) is None
    assert not await rows.any()
    assert await rows.commit(made(1), "")
    assert await rows.newest(HERE) == made(1)
    assert await rows.newest(NAMED) is None
    assert await rows.any()


async def test_newer_one_has_the_older_one_deleted(rows: Checkpoints) -> None:
    assert await take(rows, HERE, 1, Origin("vol_1"))
    assert await take(rows, HERE, 2, Origin("vol_1", "ckpt_1"))
    assert await rows.newest(HERE) == made(2)
    assert await rows.to_delete(100) == [("ckpt_1", "object_1", True)]
    await rows.forget("ckpt_1")
    await rows.forget("ckpt_2")  # which counts: nobody may forget it
    assert await rows.to_delete(100) == []
    assert await rows.newest(HERE) == made(2)


async def test_volume_that_is_behind_is_not_taken(rows: Checkpoints) -> None:
    assert await take(rows, HERE, 1, Origin("vol_1"))
    assert await take(rows, HERE, 2, Origin("vol_2", "ckpt_1"))  # restored on another machine
    assert await rows.begin(HERE, "ckpt_3", "object_3", Origin("vol_1", "ckpt_1")) is None
    assert await rows.begin(HERE, "ckpt_3", "object_3", Origin()) is None
    assert await rows.newest(HERE) == made(2, "vol_2")
    assert await to_delete(rows) == {"object_1"}


async def test_upload_that_another_one_overtook_does_not_count(rows: Checkpoints) -> None:
    assert await rows.begin(HERE, "ckpt_1", "object_1", Origin("vol_1")) == ""
    assert await take(rows, HERE, 2, Origin("vol_1"))
    assert not await rows.commit(made(1), "")
    assert await rows.newest(HERE) == made(2)
    assert await to_delete(rows) == {"object_1"}


async def test_what_dead_processes_were_uploading_is_deleted(rows: Checkpoints) -> None:
    assert await take(rows, HERE, 1, Origin("vol_1"))
    await rows.begin(HERE, "ckpt_2", "object_2", Origin("vol_1"))
    await rows.begin(NAMED, "ckpt_3", "object_3", Origin("vol_3"))
    await rows.drop("ckpt_3")
    await rows.drop_unfinished()
    assert await to_delete(rows) == {"object_2", "object_3"}
    assert not any(one.stored for one in await rows.to_delete(100))
    assert not await rows.commit(made(2), "ckpt_1")
    assert await rows.newest(HERE) == made(1)


async def test_one_whose_commit_was_cut_off_but_came_about_is_not_dropped(
    rows: Checkpoints,
) -> None:
    assert await take(rows, HERE, 1, Origin("vol_1"))
    assert await take(rows, HERE, 2, Origin("vol_1", "ckpt_1"))
    await rows.drop("ckpt_2")  # by who was not told that it counts, and its predecessor does not
    assert await rows.newest(HERE) == made(2)
    assert await to_delete(rows) == {"object_1"}


async def test_purge_takes_what_is_being_uploaded_too(rows: Checkpoints) -> None:
    assert await take(rows, HERE, 1, Origin("vol_1"))
    assert await take(rows, NAMED, 2, Origin("vol_2"))
    assert await take(rows, THERE, 3, Origin("vol_3"))
    await rows.begin(HERE, "ckpt_4", "object_4", Origin("vol_1"))
    await rows.purge("sesn_1", "build")
    assert await to_delete(rows) == {"object_2"}
    await rows.purge("sesn_1", None)
    await rows.purge("sesn_1", None)
    assert await to_delete(rows) == {"object_1", "object_2", "object_4"}
    assert not await rows.commit(made(4), "ckpt_1")
    assert await rows.newest(THERE) == made(3, "vol_3")


async def test_workspace_that_moves_takes_its_checkpoints_along(rows: Checkpoints) -> None:
    assert await take(rows, NAMED, 1, Origin("vol_1"))
    await rows.begin(NAMED, "ckpt_2", "object_2", Origin("vol_1"))
    for _ in range(2):
        await rows.move(NAMED, THERE)
    assert await rows.newest(NAMED) is None
    assert await rows.commit(made(2), "ckpt_1")
    assert await rows.newest(THERE) == made(2)
    assert await to_delete(rows) == {"object_1"}
