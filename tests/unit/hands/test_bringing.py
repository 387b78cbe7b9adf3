"""Bringing things into hands: once, whole or not at all, and never in the way of others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.hands import boot
from services.hands.bringing import beneath
from services.hands.bringing.bringer import Bringer, Errand, NotBrought
from services.hands.bringing.ledger import Ledger
from services.hands.domain.mounts import NONE, MountedFile, Mounts
from services.hands.hand import Hand
from services.hands.traffic import Traffic
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

WHERE = "sesn_1"


class Files:
    """A `Kind` whose files say their own ids."""

    part = "uploads"

    def __init__(self) -> None:
        self.brought: list[str] = []
        self.fail: dict[str, NotBrought] = {}
        self.gate: asyncio.Event | None = None
        self.at_once = self.most_at_once = 0

    def items(self, mounts: Mounts) -> tuple[MountedFile, ...]:
        return mounts.files

    def path(self, item: MountedFile) -> str:
        return item.path

    def key(self, item: MountedFile) -> str:
        return item.file_id

    def about(self, item: MountedFile) -> str:
        return item.file_id

    async def bring(self, item: MountedFile, errand: Errand) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            if (failure := self.fail.get(item.file_id)) is not None:
                raise failure
            self.brought.append(item.file_id)
            (errand.root / errand.unfinished).write_text(item.file_id)
        finally:
            self.at_once -= 1


def given(**files: str) -> Mounts:
    """Files by their ids: where each is."""
    return Mounts("wrkspc_1", tuple(MountedFile(key, path) for key, path in files.items()))


class Stage:
    def __init__(self, world: World, kind: Files) -> None:
        self.world = world
        self.kind = kind
        self.root = world.directory / "workspaces" / WHERE
        self.new_process()

    def new_process(self, wait_seconds: float = 5.0) -> None:
        world, self.metrics = self.world, CollectorRegistry()
        self.bringer = Bringer(
            *(self.kind, world.pool, world.workspaces, world.tasks, world.clock),
            wait_seconds=wait_seconds,
            traffic=Traffic(self.metrics),
        )
        world.pool.pieces[:] = [self.bringer]

    async def furnish(self, mounts: Mounts, *, again: bool = False) -> Hand:
        async with self.world.pool.use(WHERE) as hand:
            await self.world.pool.furnish(WHERE, hand, mounts, again=again)
            return hand

    async def another_hand(self) -> None:
        await self.world.pool.release(WHERE)

    def there(self) -> dict[str, str]:
        uploads = self.root / "uploads"
        files = [path for path in uploads.rglob("*") if path.is_file()]
        return {path.relative_to(uploads).as_posix(): path.read_text() for path in files}

    def beside(self) -> set[str]:
        return {path.name for path in self.root.iterdir() if path.name.startswith(".")}


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world, Files())


async def test_hand_without_mounts_over_a_new_workspace_is_settled_unasked(stage: Stage) -> None:
    async with stage.world.pool.use(WHERE) as hand:
        assert stage.world.pool.furnished(WHERE, hand, NONE)
        await stage.world.pool.furnish(WHERE, hand, NONE)
    assert stage.beside() == set()


async def test_what_is_asked_for_is_there_and_nothing_else(stage: Stage) -> None:
    await stage.furnish(given(f1="a", f2="deep/in/b"))
    assert stage.there() == {"a": "f1", "deep/in/b": "f2"}
    await stage.furnish(given(f2="deep/in/b", f3="a"))
    assert stage.there() == {"a": "f3", "deep/in/b": "f2"}
    await stage.furnish(given(f4="deep"))
    assert stage.there() == {"deep": "f4"}
    hand = await stage.furnish(NONE)
    assert stage.there() == {}
    assert stage.bringer.settled(WHERE, hand, NONE)
    assert stage.kind.brought == ["f1", "f2", "f3", "f4"]
    assert stage.beside() == {".uploads.json"}
    counted, of = stage.metrics.get_sample_value, {"part": "uploads", "outcome": "brought"}
    assert counted("drover_hands_brought_total", of) == 4


async def test_the_next_process_knows_what_is_there(stage: Stage) -> None:
    wanted = given(f1="a", f2="b")
    await stage.furnish(wanted)
    await stage.another_hand()
    stage.new_process()
    await stage.furnish(wanted)
    assert stage.kind.brought == ["f1", "f2"]


async def test_what_a_process_left_half_there_is_taken_away(stage: Stage) -> None:
    await stage.furnish(given(f1="a", f2="b"))
    await stage.another_hand()
    (stage.root / ".uploads-7").write_text("half")
    (stage.root / "uploads" / "half").write_text("who knows")
    with beneath.opened(stage.root) as volume:
        Ledger("uploads").write(volume, {"a": "f1", "b": "f2", "half": ""})
    stage.new_process()
    await stage.furnish(given(f1="a"))
    assert stage.there() == {"a": "f1"}
    assert stage.beside() == {".uploads.json"}


async def test_nothing_is_believed_that_was_written_before_the_machine_was_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.furnish(given(f1="a"))
    await stage.another_hand()
    (stage.root / "uploads" / "a").write_text("")  # the ledger came to the disk, and its bytes not
    monkeypatch.setattr(boot, "boot_id", lambda: "another")
    stage.new_process()
    await stage.furnish(given(f1="a"))
    assert stage.there() == {"a": "f1"}


async def test_nothing_is_believed_of_a_volume_without_a_ledger(stage: Stage) -> None:
    volume = await stage.world.workspaces.make(WHERE)
    outside = stage.world.directory / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    uploads = volume.root / "uploads"
    (uploads / "old").mkdir()
    (uploads / "old" / "file").touch()
    (uploads / "link").symlink_to(outside)
    (uploads / "a").symlink_to(outside / "kept")
    await stage.furnish(given(f1="a", f2="link/b"))
    assert stage.there() == {"a": "f1", "link/b": "f2"}
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == ""


async def test_what_fails_is_told_and_tried_when_the_session_is_run_again(stage: Stage) -> None:
    stage.kind.fail["f2"] = NotBrought("it has expired", away=False)
    wanted = given(f1="a", f2="b")
    hand = await stage.furnish(wanted)
    assert [problem.message for problem in hand.problems] == ["f2 is missing: it has expired"]
    assert stage.there() == {"a": "f1"}
    stage.kind.fail.clear()
    await stage.furnish(wanted)
    assert stage.there() == {"a": "f1"}
    hand = await stage.furnish(wanted, again=True)
    assert stage.there() == {"a": "f1", "b": "f2"}
    assert not hand.problems
    assert stage.kind.brought == ["f1", "f2"]


async def test_what_is_away_is_tried_again_after_a_while(stage: Stage) -> None:
    stage.kind.fail["f1"] = NotBrought("the registry is away", away=True)
    await stage.furnish(given(f1="a"))
    stage.kind.fail.clear()
    await stage.furnish(given(f1="a"))
    assert stage.there() == {}
    stage.world.clock.seconds += 6
    hand = await stage.furnish(given(f1="a"))
    assert stage.there() == {"a": "f1"}
    assert not hand.problems


async def test_calls_do_not_wait_long_again_for_what_was_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.bringing.bringer._WAIT_AGAIN_SECONDS", 0.0)
    stage.new_process(wait_seconds=60.0)
    stage.kind.fail["f1"] = NotBrought("it is away", away=True)
    await stage.furnish(given(f1="a"))
    del stage.kind.fail["f1"]
    stage.kind.gate = asyncio.Event()  # it does not answer
    stage.world.clock.seconds += 6
    async with asyncio.timeout(30):
        hand = await stage.furnish(given(f1="a"))
    assert "on their way" in hand.problems[0].message
    stage.kind.gate.set()
    await eventually(lambda: not stage.bringer.busy(WHERE))
    assert stage.there() == {"a": "f1"}


async def test_nobody_waits_for_ever_and_what_goes_on_is_told(stage: Stage) -> None:
    stage.new_process(wait_seconds=0.05)
    stage.kind.gate = asyncio.Event()
    wanted = given(f1="a")
    hand = await stage.furnish(wanted)
    assert "on their way" in hand.problems[0].message
    assert stage.world.pool.furnishing(WHERE)
    stage.kind.gate.set()
    await eventually(lambda: stage.bringer.settled(WHERE, hand, wanted))
    assert not hand.problems
    assert not stage.world.pool.furnishing(WHERE)


async def test_place_is_busy_until_all_are_done_that_bring_something_there(stage: Stage) -> None:
    stage.new_process(wait_seconds=0.0)
    first, second = asyncio.Event(), asyncio.Event()
    stage.kind.gate = first
    await stage.furnish(given(f1="a"))
    await eventually(lambda: stage.kind.at_once)
    await stage.another_hand()
    await stage.furnish(given(f2="b"))
    stage.kind.gate = second
    first.set()
    await eventually(lambda: stage.kind.brought == ["f1"] and stage.kind.at_once)
    assert stage.bringer.busy(WHERE)
    second.set()
    await eventually(lambda: not stage.bringer.busy(WHERE))
    assert stage.there() == {"b": "f2"}


async def test_few_are_brought_at_once_and_callers_share_the_work(stage: Stage) -> None:
    wanted = given(**{f"f{number}": f"p{number}" for number in range(30)})
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(stage.furnish(wanted))
    assert len(stage.there()) == 30
    assert len(stage.kind.brought) == 30
    assert stage.kind.most_at_once == 4


async def test_many_that_are_missing_are_not_told_one_by_one(stage: Stage) -> None:
    wanted = given(**{f"f{number}": f"p{number}" for number in range(30)})
    away = NotBrought("the registry is away", away=True)
    stage.kind.fail = dict.fromkeys((file.file_id for file in wanted.files), away)
    hand = await stage.furnish(wanted)
    assert len(hand.problems) == 11
    assert "20 more uploads are missing" in hand.problems[-1].message


async def test_service_that_stops_ends_what_is_under_way(stage: Stage) -> None:
    stage.new_process(wait_seconds=0.05)
    stage.kind.gate = asyncio.Event()
    await stage.furnish(given(f1="a"))
    await stage.bringer.close()
    assert not stage.world.pool.furnishing(WHERE)
    stage.kind.gate = None
    await stage.another_hand()
    stage.new_process()
    await stage.furnish(given(f1="a"))
    assert stage.there() == {"a": "f1"}
    assert stage.beside() == {".uploads.json"}


async def test_receiver_of_a_hand_has_what_it_is_given_itself(stage: Stage) -> None:
    hand = await stage.furnish(given(f1="a"))
    world = stage.world
    await world.pool.move(WHERE, "sesn_2")
    await world.workspaces.move(WHERE, "sesn_2")
    assert not world.pool.furnished("sesn_2", hand, NONE)
    stage.root = world.directory / "workspaces/sesn_2"
    await world.pool.furnish("sesn_2", hand, given(f9="b"))
    assert stage.there() == {"b": "f9"}


async def test_a_full_disk_is_told_and_leaves_nothing_half_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(beneath, "put", full)
        hand = await stage.furnish(given(f1="a"))
    assert "No space left on device" in hand.problems[0].message
    assert stage.there() == {}
    assert stage.beside() == {".uploads.json"}


def test_places_are_made_and_taken_away_by_name_alone(tmp_path: Path) -> None:
    outside, volume = tmp_path / "outside", tmp_path / "volume"
    (volume / "uploads").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (volume / "uploads" / "way").symlink_to(outside)
    (volume / "new").write_text("new")
    with beneath.opened(volume) as root:
        with pytest.raises(NotADirectoryError):
            beneath.put(root, "new", "uploads", "way/kept")
        with beneath.opened("uploads", at=root) as part:
            beneath.take_away(part, "way/kept")
            beneath.take_away(part, "way")
    assert (outside / "kept").read_text() == "kept"
    assert not [*(volume / "uploads").iterdir()]
