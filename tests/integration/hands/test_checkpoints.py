"""Workspaces in a store: taken, restored, pruned, and what happens when something fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.port import BackendUnavailable
from services.hands.checkpoints.keeper import Pace
from services.hands.checkpoints.pruning import SETTLE_SECONDS
from storage.objects import ObjectsAway, open_objects
from tests.doubles import odd_tree
from tests.doubles.hands_keeping import QUICK, Keeping, keeping, until
from tests.doubles.s3 import S3, running_s3

WORKSPACES = "services.hands.workspace.Workspaces"
NEVER = Pace(idle_seconds=3600.0, stop_seconds=0.0)


class Machines:
    """Machines with a hands process over one database and one store, one after the other."""

    def __init__(self, directory: Path, s3: S3) -> None:
        self.directory = directory
        self.s3 = s3
        self.url = "s3://bucket/drover"

    def start(self, name: str = "one", **given: Any) -> AbstractAsyncContextManager[Keeping]:
        objects = open_objects(self.url, self.s3.environment) if self.url else None
        place = self.directory / name
        return keeping(place, self.directory / "hands.db", given.pop("objects", objects), **given)

    def stored(self) -> list[str]:
        return sorted(self.s3.objects)

    def asked(self, method: str) -> int:
        """How many requests of that kind there were."""
        return sum(request.startswith(method) for request in self.s3.requests)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with running_s3() as s3:
        yield Machines(tmp_path, s3)


async def taken(world: Keeping, count: int = 1) -> None:
    await until(lambda: world.count("take", "done") >= count)


def only(root: Path) -> str:
    return (root / "workspace" / "file").read_text()


async def test_workspace_is_the_same_on_another_machine(machines: Machines) -> None:
    where = "sesn_1@build"
    async with machines.start() as one:
        one.keeper.used(where)
        root = await one.volume(where)
        shutil.rmtree(root)
        odd_tree.make(root)
        if os.geteuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, 250_000, 250_000, follow_symlinks=False)
        before = odd_tree.look(root)
        one.keeper.rested(where)
        await taken(one)
        assert odd_tree.look(root) == before
    async with machines.start("two") as two:
        copy = await two.volume(where)
        assert odd_tree.look(copy) == before
        owner = copy.stat().st_uid
        assert {path.lstat().st_uid for path in copy.rglob("*")} == {owner}
        assert (owner != 0) == (os.geteuid() == 0)
        assert two.count("restore", "done") == 1
    assert [name.startswith(f"bucket/drover/{where}/") for name in machines.stored()] == [True]


async def test_nothing_is_stored_while_a_hand_is_used(machines: Machines) -> None:
    async with machines.start() as one:
        await one.work()
        one.keeper.used("sesn_1")
        await one.work("sesn_2")
        await taken(one)
        assert {name.split("/")[2] for name in machines.stored()} == {"sesn_2"}
        one.keeper.rested("sesn_1")
        await taken(one, 2)


async def test_workspace_that_has_not_changed_is_not_stored_again(machines: Machines) -> None:
    async with machines.start() as one:
        root = await one.work()
        await taken(one)
        first = machines.stored()
        one.keeper.rested("sesn_1")
        await until(lambda: one.count("take", "unchanged"))
        assert machines.stored() == first
        (root / "workspace" / "file").write_text("other")
        one.keeper.ended("sesn_1")
        await taken(one, 2)
        await until(lambda: len(machines.stored()) == 1)
        assert machines.stored() != first
    async with machines.start("two") as two:
        assert only(await two.volume()) == "other"
        two.keeper.rested("sesn_1")
        await until(lambda: two.count("take", "unchanged"))


async def test_older_one_is_deleted_only_once_the_newer_counts(machines: Machines) -> None:
    async with machines.start() as one:
        await one.work(text="first")
        await taken(one)
        first = machines.stored()
        machines.s3.held = "PUT"
        await one.work(text="second")
        await until(lambda: machines.asked("PUT") == 2)
        assert machines.stored() == first
        machines.s3.gate.set()
        await taken(one, 2)
        await until(lambda: len(machines.stored()) == 1)
        assert machines.stored() != first


async def test_failing_store_keeps_nobody_and_is_tried_again(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.checkpoints.keeper._FIRST_RETRY", 0.02)
    machines.s3.status = 403
    async with machines.start() as one:
        root = await one.work()
        await until(lambda: one.count("take", "failed") >= 3)
        assert only(root) == "done"
        machines.s3.status = 0
        await taken(one)
        await until(lambda: len(machines.stored()) == 1)
    async with machines.start("two") as two:
        assert only(await two.volume()) == "done"


async def test_workspace_out_of_bounds_is_told_and_not_tried_before_it_is_used_again(
    machines: Machines,
) -> None:
    async with machines.start(entries=8) as one:
        root = await one.work()
        for number in range(5):
            (root / "workspace" / str(number)).touch()
        one.keeper.rested("sesn_1")
        await until(lambda: one.count("take", "failed") == 1)
        assert not one.keeper._due
        (root / "workspace" / "0").unlink()
        (root / "workspace" / "1").unlink()
        (root / "workspace" / "2").unlink()
        one.keeper.rested("sesn_1")
        await taken(one)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("digest", "its digest is another"),
        ("truncated", "damaged"),
        ("missing", "not in the store"),
        ("refused", "503 Service Unavailable"),
        ("unset", "DROVER_HANDS_CHECKPOINTS"),
    ],
)
async def test_workspace_that_cannot_be_restored_is_never_an_empty_one(
    machines: Machines, harm: str, told: str
) -> None:
    async with machines.start() as one:
        await one.work()
        await taken(one)
    name, whole = next(iter(machines.s3.objects.items()))
    if harm == "digest":
        machines.s3.objects[name] = whole[:9] + bytes([whole[9] ^ 1]) + whole[10:]  # gzip's OS byte
    elif harm == "truncated":
        machines.s3.objects[name] = whole[:-20]
    elif harm == "missing":
        machines.s3.objects.clear()
    elif harm == "refused":
        machines.s3.status = 503
    else:
        machines.url = ""
    async with machines.start("two") as two:
        for _ in range(2):
            with pytest.raises(BackendUnavailable, match=told):
                await two.keeper.before_start("sesn_1")
            assert two.workspaces.find("sesn_1") is None
        assert two.count("restore", "failed") == 2
        assert await two.keeper.holds("sesn_1")
        machines.s3.objects[name], machines.s3.status = whole, 0
        if machines.url:
            assert only(await two.volume()) == "done"


async def test_machine_that_comes_back_with_an_older_workspace_gets_the_newer(
    machines: Machines,
) -> None:
    async with machines.start() as one:
        await one.work(text="old")
        await taken(one)
    async with machines.start("two") as two:
        assert only(await two.work(text="new")) == "new"
        await taken(two)
        await until(lambda: len(machines.stored()) == 1)  # the older one's goes behind it
        stored = machines.stored()
    async with machines.start() as one:
        await until(lambda: one.count("take", "overtaken"))
        assert machines.stored() == stored
        assert only(await one.volume()) == "new"
        assert await one.rows.newest("sesn_1") is not None


async def test_machine_that_dies_while_it_replaces_an_older_workspace_does_not_keep_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machines.start() as one:
        await one.work(text="old")
        await taken(one)
    async with machines.start("two") as two:
        await two.work(text="new")
        await taken(two)
    for step in ("services.hands.checkpoints.origins.Origins.write", f"{WORKSPACES}.place"):
        async with machines.start(pace=NEVER) as one:
            with monkeypatch.context() as patched:
                patched.setattr(step, dies)
                with pytest.raises(BackendUnavailable, match="power"):
                    await one.keeper.before_start("sesn_1")
    async with machines.start(pace=NEVER) as one:
        assert only(await one.volume()) == "new"


def dies(*_: object) -> None:
    raise OSError("the power is off")


async def test_store_that_is_away_is_not_asked_for_each_workspace(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.checkpoints.keeper._FIRST_RETRY", 300.0)
    machines.s3.status = 403
    async with machines.start() as one:
        sessions = [f"sesn_{number}" for number in range(6)]
        for session_id in sessions:
            await one.work(session_id)
            one.keeper.used(session_id)
        # All at once: after a first that fails alone, no second would be begun.
        for session_id in sessions:
            one.keeper.rested(session_id)
        await until(lambda: one.count("take", "failed") == QUICK.at_once)
        await until(lambda: not one.keeper._running)
        assert one.keeper._take_due(one.keeper._clock.monotonic()) > 1.0
        assert len(one.keeper._due) == 6
        machines.s3.status = 0
        await one.keeper.close()
        assert one.count("take", "done") == 6


async def test_workspace_of_this_machine_is_left_as_it_is(machines: Machines) -> None:
    async with machines.start() as one:
        root = await one.work()
        await taken(one)
        (root / "workspace" / "file").write_text("later")
        assert only(await one.volume()) == "later"
    async with machines.start(pace=NEVER) as one:
        assert only(await one.volume()) == "later"
        assert one.count("restore", "done") == 0


async def test_what_a_dead_process_did_not_get_to_is_done_by_the_next(machines: Machines) -> None:
    async with machines.start(pace=NEVER) as one:
        await one.work()
    assert machines.stored() == []
    async with machines.start() as one:
        await taken(one)


@pytest.mark.parametrize("held", ["PUT", "DELETE"])
async def test_process_may_die_at_any_moment(machines: Machines, held: str) -> None:
    async with machines.start() as one:
        await one.work(text="first")
        await taken(one)
        machines.s3.held = held
        await one.work(text="second")
        await until(lambda: machines.asked(held) == (2 if held == "PUT" else 1))
        machines.s3.held = ""
        one.pruner = None  # nothing tidies up behind a killed process
    machines.s3.gate.set()
    await until(lambda: len(machines.stored()) == (2 if held == "PUT" else 1))
    async with machines.start() as one:
        await until(lambda: one.count("take", "done") + one.count("take", "unchanged"))
        await until(lambda: len(machines.stored()) == 1)
    async with machines.start("two") as two:
        assert only(await two.volume()) == "second"


async def test_purge_deletes_checkpoints_though_the_store_is_away(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.checkpoints.pruning._FIRST_PAUSE", 0.02)
    async with machines.start() as one:
        for where in ("sesn_1", "sesn_1@build", "sesn_2"):
            await one.work(where)
        await taken(one, 3)
        machines.s3.status = 503
        await one.keeper.purged("sesn_1", None)
        await one.keeper.purged("sesn_1", None)
        undeleted = "drover_hands_checkpoints_undeleted_total"
        await until(lambda: one.registry.get_sample_value(undeleted))
        assert not await one.keeper.holds("sesn_1")
        assert len(machines.stored()) == 3
    machines.s3.status = 0
    async with machines.start("two"):
        await until(lambda: len(machines.stored()) == 1)
    assert machines.stored()[0].startswith("bucket/drover/sesn_2/")


async def test_one_that_cannot_be_deleted_keeps_no_other(machines: Machines) -> None:
    class Stubborn:
        """A bucket, one of whose objects may not be deleted."""

        def __init__(self) -> None:
            self.bucket = open_objects(machines.url, machines.s3.environment)
            self.put, self.read = self.bucket.put, self.bucket.read

        async def delete(self, name: str) -> None:
            if name.startswith("sesn_0/"):
                raise ObjectsAway("it is locked")
            await self.bucket.delete(name)

    async with machines.start(objects=Stubborn()) as one:
        for number in range(3):
            await one.work(f"sesn_{number}")
            await taken(one, number + 1)
        for number in range(3):
            await one.keeper.purged(f"sesn_{number}", None)
        await until(lambda: len(machines.stored()) == 1)
    assert machines.stored()[0].startswith("bucket/drover/sesn_0/")
    async with machines.start("two"):
        await until(lambda: machines.stored() == [])


async def test_purge_ends_a_checkpoint_that_is_being_taken(machines: Machines) -> None:
    async with machines.start() as one:
        machines.s3.held = "PUT"
        await one.work()
        await until(lambda: machines.s3.requests)
        await one.workspaces.purge("sesn_1")
        await one.keeper.purged("sesn_1", "")
        assert await one.rows.newest("sesn_1") is None
        assert one.origins.read("sesn_1").volume == ""
        machines.s3.gate.set()
        await until(lambda: machines.asked("DELETE") == 1)


async def test_upload_that_comes_to_its_end_after_its_deletion_is_deleted_again(
    machines: Machines,
) -> None:
    async with machines.start() as one:
        machines.s3.held = "PUT"
        await one.work()
        await until(lambda: machines.s3.requests)
        await one.workspaces.purge("sesn_1")
        await one.keeper.purged("sesn_1", "")
        await until(lambda: machines.asked("DELETE") == 1)
        machines.s3.gate.set()  # the store goes on with what nobody waits for
        await until(machines.stored)
        assert [late.stored for late in await one.rows.to_delete(10)] == [False]
    async with machines.start("two") as two:  # the row outlives the process, the time does not
        pruner = two.pruner
        assert pruner is not None
        await until(lambda: machines.asked("DELETE") == 2 and pruner.unsettled == 1)
        two.pruners_clock.ahead = SETTLE_SECONDS
        pruner.wake()
        await until(lambda: machines.asked("DELETE") == 3)
        async with asyncio.timeout(20):
            while await two.rows.to_delete(10):  # noqa: ASYNC110  # what `until` does
                await asyncio.sleep(0.005)
        assert machines.stored() == []


async def test_workspace_that_is_handed_on_is_restored_for_its_new_owner(
    machines: Machines,
) -> None:
    async with machines.start() as one:
        await one.work("sesn_1@build")
        await taken(one)
        for _ in range(2):
            await one.workspaces.move("sesn_1@build", "sesn_2@theirs")
            await one.keeper.moved("sesn_1@build", "sesn_2@theirs")
        assert not await one.keeper.holds("sesn_1@build")
        await until(lambda: one.count("take", "unchanged"))
    async with machines.start("two") as two:
        assert only(await two.volume("sesn_2@theirs")) == "done"


async def test_service_that_stops_takes_what_is_left(machines: Machines) -> None:
    async with machines.start(pace=Pace(idle_seconds=3600.0, stop_seconds=60.0)) as one:
        for number in range(5):
            await one.work(f"sesn_{number}")
        await one.keeper.close()
        assert one.count("take", "done") == 5


async def test_service_that_stops_does_not_wait_for_a_store_that_hangs(machines: Machines) -> None:
    async with machines.start(pace=Pace(idle_seconds=3600.0, stop_seconds=0.3)) as one:
        machines.s3.held = "PUT"
        await one.work()
        async with asyncio.timeout(20):
            await one.keeper.close()
        assert not one.keeper._running
        machines.s3.gate.set()


async def test_only_so_many_are_stored_at_once(machines: Machines) -> None:
    async with machines.start() as one:
        machines.s3.held = "PUT"
        for number in range(5):
            await one.work(f"sesn_{number}")
        await until(lambda: len(machines.s3.requests) == QUICK.at_once)
        assert len(one.keeper._running) == QUICK.at_once
        machines.s3.gate.set()
        await taken(one, 5)


async def test_without_a_store_nobody_is_asked(tmp_path: Path) -> None:
    async with keeping(tmp_path / "one", tmp_path / "hands.db", None) as one:
        await one.work()
        assert (one.keeper._due, one.keeper._used) == ({}, set())
        assert not await one.keeper.holds("sesn_1")


async def test_restore_that_breaks_off_leaves_no_half_workspace(machines: Machines) -> None:
    async with machines.start() as one:
        await one.work()
        await taken(one)

    class Breaks:
        def read(self, name: str, size: int) -> AsyncIterator[bytes]:
            return self._read(next(iter(machines.s3.objects.values())))

        async def _read(self, whole: bytes) -> AsyncIterator[bytes]:
            yield whole[: len(whole) // 2]
            raise ObjectsAway("it breaks off")

    async with machines.start("two", objects=Breaks()) as two:
        with pytest.raises(BackendUnavailable, match="it breaks off"):
            await two.keeper.before_start("sesn_1")
        assert [
            path.name for path in (machines.directory / "two").rglob("*") if path.is_file()
        ] == []
        assert [*(machines.directory / "two" / "spares").iterdir()] == []
