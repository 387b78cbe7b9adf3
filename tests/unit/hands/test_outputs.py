"""When outputs are published, and what becomes of those that are not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from chassis.errors import DroverError, Reason
from services.hands.outputs.news import note
from services.hands.outputs.publication import Publication
from services.hands.outputs.publisher import Pace, Publisher
from services.hands.outputs.record import mark_restored
from services.hands.outputs.scan import Bounds
from services.hands.traffic import Traffic
from services.hands.workspace import Workspaces
from tests.doubles.hands_waiting import eventually

WHERE = "sesn_1"


@dataclass
class Registry:
    """Keeps what is published, by name. `fail` is raised by every upload, `gate` holds them up."""

    files: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    earlier: dict[str, int] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    fail: DroverError | None = None
    gate: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(
        self,
        workspace_id: str,
        session_id: str,
        name: str,
        size: int,
        pieces: AsyncIterator[bytes],
    ) -> None:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fail is not None:
            raise self.fail
        data = b"".join([piece async for piece in pieces])
        assert len(data) == size
        assert workspace_id == "wrkspc_1"
        self.sessions.add(session_id)
        self.files[name] = data
        self.uploads.append(name)

    async def made(self, workspace_id: str, session_id: str) -> dict[str, int]:
        assert workspace_id == "wrkspc_1"
        return self.earlier


class Owners:
    async def workspace_of(self, session_id: str) -> str:
        return "wrkspc_1" if session_id.startswith("sesn") else ""


class Stage:
    def __init__(self, directory: Path, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        self.registry = Registry()
        self.workspaces = Workspaces(directory, privileged=False)
        self.sessions = directory / "workspaces"
        self.new_process()

    def new_process(self, bounds: Bounds | None = None, quiet: float = 0.0) -> None:
        self.metrics = CollectorRegistry()
        publication = Publication(
            self.registry,
            Owners(),
            bounds or Bounds(files=5, file_bytes=1000),
            traffic=Traffic(self.metrics),
        )
        pace = Pace(quiet=quiet, last=5.0, stop=5.0)
        self.publisher = Publisher(publication, self.workspaces, self.tasks, pace=pace)

    def write(self, path: str, data: bytes = b"data", where: str = WHERE) -> Path:
        """A file that has been as it is for a while."""
        file = self.sessions / where / "outputs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    async def call(self, where: str = WHERE) -> None:
        """A call comes and goes, and what it left is published, or not."""
        self.publisher.used(where)
        self.publisher.rested(where)
        await self.rests(where)

    async def rests(self, where: str = WHERE) -> None:
        def at_rest() -> bool:
            watch = self.publisher._watches.get(where)
            if watch is None:
                return True
            soon = watch.timer is not None and watch.timer.when() < _now() + 0.5
            return watch.running is None and not soon

        await eventually(at_rest)

    def news(self) -> dict[str, str]:
        return self.publisher.take_news(WHERE)


def _now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr("services.hands.outputs.scan._MOMENT", 0)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stage = Stage(tmp_path, tasks)
        await stage.workspaces.start()
        await stage.workspaces.make(WHERE)
        yield stage
        await stage.publisher.close()


async def test_what_has_changed_is_published_and_nothing_else(stage: Stage) -> None:
    stage.write("a")
    stage.write("deep/b", b"")
    await stage.call()
    assert stage.registry.files == {"a": b"data", "deep/b": b""}
    stage.write("a", b"other")
    await stage.call()
    await stage.call()
    assert stage.registry.files["a"] == b"other"
    assert stage.registry.uploads.count("deep/b") == 1
    assert len(stage.registry.uploads) == 3
    counted = stage.metrics.get_sample_value
    assert counted("drover_hands_outputs_total", {"outcome": "published"}) == 3
    assert counted("drover_hands_outputs_bytes_total") == len(b"data") + len(b"other")


async def test_nothing_is_looked_at_while_a_call_runs(stage: Stage) -> None:
    stage.write("a")
    stage.publisher.used(WHERE)
    stage.publisher.ended(WHERE)
    stage.publisher._plan(WHERE, 0.0)
    await asyncio.sleep(0.02)
    assert not stage.registry.files
    stage.publisher.rested(WHERE)
    await eventually(lambda: stage.registry.files)


async def test_the_next_process_publishes_what_this_one_did_not_get_to_and_no_more(
    stage: Stage,
) -> None:
    stage.write("a")
    await stage.call()
    stage.write("b")
    stage.new_process()
    await stage.publisher.start()
    await eventually(lambda: "b" in stage.registry.files)
    await stage.rests()
    assert stage.registry.uploads == ["a", "b"]


async def test_named_hands_files_have_its_name_before_theirs(stage: Stage) -> None:
    where = f"{WHERE}@build"
    await stage.workspaces.make(where)
    stage.write("a", b"one")
    stage.write("a", b"two", where)
    await stage.call()
    await stage.call(where)
    assert stage.registry.files == {"a": b"one", "build/a": b"two"}
    assert stage.registry.sessions == {WHERE}


async def test_while_the_registry_is_away_it_is_asked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.outputs.publisher._FIRST_PAUSE", 0.01)
    stage.registry.fail = DroverError(Reason.UNAVAILABLE, "away")
    for name in "abc":
        stage.write(name)
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await eventually(lambda: stage.publisher._watches[WHERE].attempts > 2)
    stage.registry.fail = None
    await eventually(lambda: len(stage.registry.files) == 3)
    assert not stage.publisher.has_news(WHERE)


async def test_file_that_changes_while_it_is_read_is_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.outputs.publisher._FIRST_PAUSE", 0.01)
    file = stage.write("a")
    stage.registry.gate = asyncio.Event()
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await stage.registry.begun.wait()
    file.write_bytes(b"something longer")
    stage.registry.gate.set()
    await eventually(lambda: stage.registry.files)
    assert stage.registry.files == {"a": b"something longer"}


async def test_file_that_never_rests_is_tried_less_and_less_often(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.outputs.scan._MOMENT", 1 << 62)
    stage.write("a")
    pauses = []
    for _ in range(3):
        await stage.publisher.publish(WHERE)
        watch = stage.publisher._watches[WHERE]
        pauses.append(round(watch.due_at - _now()))
    assert pauses == [1, 2, 4]
    monkeypatch.setattr("services.hands.outputs.scan._MOMENT", 0)
    await stage.publisher.publish(WHERE)
    assert stage.publisher._watches == {}


async def test_nothing_more_is_sent_of_a_file_that_has_changed(stage: Stage) -> None:
    stage.new_process(Bounds(files=5, file_bytes=4 << 20))
    file = stage.write("a", bytes(4 << 20))
    sent = []

    async def publish(*given: object) -> None:
        pieces = given[-1]
        async for piece in pieces:  # type: ignore[attr-defined]
            sent.append(piece)
            with file.open("ab") as more:
                more.write(b"and more")

    stage.registry.publish = publish  # type: ignore[assignment,method-assign]
    await stage.publisher.publish(WHERE)
    assert len(sent) == 1


async def test_file_of_this_very_moment_is_published_and_once_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.outputs.publisher._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("services.hands.outputs.scan._MOMENT", 100_000_000)
    stage.write("a")
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await eventually(lambda: len(stage.registry.uploads) > 1)


async def test_what_is_refused_is_told_once_though_the_process_dies(stage: Stage) -> None:
    outputs = stage.sessions / WHERE / "outputs"
    (outputs / "link").symlink_to("/etc/passwd")
    stage.write("large", b"x" * 1001)
    for number in range(6):
        stage.write(f"n{number}")
    await stage.call()
    news = stage.news()
    assert news.keys() == {"link", "large", "n5"}
    assert news["n5"] == "there are more than 5 files"
    assert not stage.news()
    await stage.call()
    stage.new_process(Bounds(files=5, file_bytes=1000))
    await stage.call()
    assert not stage.news()
    (outputs / "other").symlink_to("/etc/passwd")
    await stage.call()
    assert stage.news().keys() == {"other"}
    assert len(stage.registry.files) == 5
    text = note({"a": "it is a pipe", "b": "it is a device"})
    expected = "[not published from /mnt/session/outputs: a: it is a pipe; b: it is a device]"
    assert text == expected
    assert note({str(n): "x" for n in range(13)}).endswith("; and 3 more]")


async def test_published_files_stay_when_more_come_than_are_published(stage: Stage) -> None:
    for number in range(5):
        stage.write(f"n{number}")
    await stage.call()
    stage.write("a")
    stage.write("n3", b"changed")
    await stage.call()
    assert stage.registry.files["n3"] == b"changed"
    assert "a" not in stage.registry.files
    (stage.sessions / WHERE / "outputs/n0").unlink()
    await stage.call()
    assert "a" in stage.registry.files
    assert "n0" in stage.registry.files  # what was published stays


@pytest.mark.parametrize(
    "refusal",
    [
        DroverError(Reason.INVALID_ARGUMENT, "no name"),
        DroverError(Reason.REQUEST_TOO_LARGE, "too large"),
    ],
)
async def test_what_the_registry_refuses_is_told_and_not_sent_again_before_it_changes(
    stage: Stage, refusal: DroverError
) -> None:
    stage.registry.fail = refusal
    stage.write("a")
    await stage.call()
    assert stage.news() == {"a": refusal.message}
    stage.registry.fail = None
    await stage.call()
    assert not stage.registry.files
    stage.write("a", b"another")
    await stage.call()
    assert stage.registry.files == {"a": b"another"}


async def test_what_there_is_no_room_for_is_told_once_and_published_when_there_is(
    stage: Stage,
) -> None:
    full = DroverError(Reason.INVALID_ARGUMENT, "full", error_code="storage_quota_exceeded")
    stage.registry.fail = full
    stage.write("a")
    await stage.call()
    assert stage.news() == {"a": "full"}
    await stage.call()
    assert not stage.news()
    stage.registry.fail = None
    await stage.call()
    assert stage.registry.files.keys() == {"a"}


async def test_of_a_session_that_is_deleted_nothing_is_tried_again(stage: Stage) -> None:
    stage.registry.fail = DroverError(Reason.NOT_FOUND, "it was deleted")
    stage.write("a")
    await stage.call()
    stage.registry.fail = None
    await stage.call()
    assert not stage.registry.files
    assert not stage.news()


async def test_purge_ends_what_is_under_way_and_waits_for_it(stage: Stage) -> None:
    stage.registry.gate = asyncio.Event()
    stage.write("a")
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await stage.registry.begun.wait()
    await stage.publisher.purged(WHERE, None)
    stage.registry.gate.set()
    await stage.publisher.close()
    assert not stage.registry.files
    assert not stage.publisher._watches


async def test_hand_that_leaves_and_service_that_stops_publish_first(stage: Stage) -> None:
    stage.new_process(quiet=60.0)
    stage.write("a")
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await stage.publisher.leaves(WHERE)
    assert "a" in stage.registry.files
    stage.write("b")
    stage.publisher.used(WHERE)
    stage.publisher.rested(WHERE)
    await stage.publisher.close()
    assert "b" in stage.registry.files


async def test_what_fails_is_tried_again_whoever_had_waited_for_others_before(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.outputs.publisher._FIRST_PAUSE", 0.01)
    stage.write("a")
    stage.registry.gate = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(stage.publisher.publish(WHERE))
        await stage.registry.begun.wait()
        stage.registry.begun.clear()
        tasks.create_task(stage.publisher.publish(WHERE))
        stage.write("b")
        first, stage.registry.gate = stage.registry.gate, asyncio.Event()
        first.set()
        await stage.registry.begun.wait()
        stage.registry.fail = DroverError(Reason.UNAVAILABLE, "away")
        stage.registry.gate.set()
    assert sorted(stage.registry.files) == ["a"]
    stage.registry.fail = None
    await eventually(lambda: "b" in stage.registry.files)


async def test_ended_hands_are_forgotten_once_all_is_published(stage: Stage) -> None:
    stage.write("a")
    await stage.call()
    stage.publisher.ended(WHERE)
    await eventually(lambda: not stage.publisher._watches)
    stage.publisher.ended("sesn_gone")
    await eventually(lambda: not stage.publisher._watches)


async def test_record_goes_with_a_volume_that_is_handed_on(stage: Stage) -> None:
    stage.write("a")
    await stage.call()
    await stage.workspaces.move(WHERE, "sesn_2")
    await stage.publisher.moved(WHERE, "sesn_2")
    await stage.rests("sesn_2")
    stage.write("b", where="sesn_2")
    await stage.call("sesn_2")
    assert stage.registry.uploads == ["a", "b"]
    assert stage.registry.sessions == {WHERE, "sesn_2"}


async def test_restored_workspace_replaces_nothing_that_is_newer(stage: Stage) -> None:
    now = time.time_ns()
    for name in ("older", "newer", "new"):
        os.utime(stage.write(name), ns=(now, now))
    mark_restored(stage.sessions / WHERE)
    stage.registry.earlier = {"older": now + 1, "newer": now - 1}
    await stage.call()
    await stage.call()
    assert sorted(stage.registry.uploads) == ["new", "newer"]
    stage.write("older", b"by now newer")
    await stage.call()
    assert stage.registry.files["older"] == b"by now newer"


async def test_outputs_of_nobody_are_left_alone(stage: Stage) -> None:
    await stage.workspaces.make("unknown")
    stage.write("a", where="unknown")
    await stage.call("unknown")
    assert not stage.registry.files
