"""Images with packages of the system: who waits, who is replaced, and what counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.event.v1.content_pb2 import ContentBlock
from services.hands.backends.docker.backend import DockerBackend
from services.hands.backends.docker.container import HAND
from services.hands.backends.docker.layers import LAYER, DockerLayers
from services.hands.backends.docker.settings import EngineSettings
from services.hands.backends.port import BackendUnavailable, Layer
from services.hands.domain import apt
from services.hands.domain import packages as domain
from services.hands.domain.packages import Failure, Packages
from services.hands.domain.recipe import Blueprint, Recipe
from services.hands.hand import HandDied, Reply
from services.hands.packages.builder import Bounds, Terms
from services.hands.packages.layered import Layered
from services.hands.packages.shelf import Shelf
from services.hands.packages.system import SystemBuilder
from tests.unit.hands.conftest import STANDARD, HandSetClock

JQ = Packages((("apt", ("jq",)),), "wrkspc_1")
FAILED = Failure("apt", "jq", "E: no such thing")
SHORT = Bounds(seconds=10.0)


class Engine:
    """Layers as an engine keeps them, and a builder that makes them once `gate` is open."""

    def __init__(self, *outcomes: tuple[Failure, ...] | Exception) -> None:
        self.outcomes = [*outcomes]
        self.kept: dict[str, Layer] = {}
        self.sessions: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False
        self.written = 0
        self.room: int | None = None

    async def system(self, blueprint: Blueprint) -> str:
        return f"sha256:{blueprint.image}"

    async def layers(self, kind: str) -> Any:
        assert kind == "docker"
        return self

    async def find(self, key: str) -> Layer | None:
        return self.kept.get(key)

    async def size(self, _: str) -> int:
        return self.written

    def free(self) -> int | None:
        return self.room

    async def keep(self, key: str, hand_id: str, note: str) -> Layer:
        assert hand_id == "hand_1"
        self.kept[key] = Layer("sha256:kept", note)
        return self.kept[key]

    async def prune(self, keys: Collection[str]) -> None:
        if self.away:
            raise BackendUnavailable("the engine did not answer")
        self.kept = {key: layer for key, layer in self.kept.items() if key in keys}

    async def build(self, _: Any, key: str, _lists: Packages, session_id: str, _launch: Any) -> Any:
        self.sessions.append(session_id)
        await self.gate.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        note = json.dumps([[one.manager, one.package, one.words] for one in outcome])
        self.kept[key] = Layer(f"sha256:layer-{len(self.sessions)}", note)
        return self.kept[key], outcome


@asynccontextmanager
async def layered(directory: Path, engine: Engine) -> AsyncIterator[tuple[Layered, HandSetClock]]:
    clock, shelf = HandSetClock(), Shelf(directory)
    shelf.start()
    terms = Terms(shelf, wait_seconds=0.05, bounds=Bounds(keep_seconds=60.0))
    async with asyncio.TaskGroup() as tasks:
        given = (terms, cast("Any", engine), cast("Any", engine), STANDARD)
        yield Layered(*given, tasks=tasks, clock=clock, room=asyncio.Semaphore(2)), clock


async def started(made: Layered, session_id: str = "sesn_1") -> Any:
    """A hand as it would be started."""
    blueprint = STANDARD.blueprint(Recipe("docker", "box", packages=JQ))
    found, layering = await made.on(blueprint, session_id)
    return SimpleNamespace(backend="docker", image=found.image, layering=layering)


async def test_sandboxes_share_one_image(tmp_path: Path) -> None:
    engine = Engine(())
    async with layered(tmp_path, engine) as (made, _):
        hands = await asyncio.gather(*(started(made, f"sesn_{number}") for number in range(3)))
        assert {hand.image for hand in hands} == {"sha256:layer-1"}
        assert all(made.settled(hand) for hand in hands)
        assert not any(made.outdated(hand) for hand in hands)
    (builder,) = engine.sessions  # whichever of them came first
    async with layered(tmp_path, engine) as (made, _):  # the next process
        assert (await started(made)).image == "sha256:layer-1"
    assert engine.sessions == [builder]


async def test_sandbox_that_was_started_without_is_outdated_once_the_image_is_there(
    tmp_path: Path,
) -> None:
    engine = Engine(())
    engine.gate.clear()
    async with layered(tmp_path, engine) as (made, _):
        early = await started(made)
        assert (early.image, early.layering.pending) == ("box", True)
        assert not made.outdated(early)
        assert not made.settled(early)
        engine.gate.set()
        assert await made.ready(early, JQ, "sesn_1", again=False) == ()
        assert made.outdated(early)
        after = await started(made)
        assert (after.image, made.outdated(after)) == ("sha256:layer-1", False)


async def test_what_failed_is_tried_again_after_a_pause_and_replaces_what_there_was(
    tmp_path: Path,
) -> None:
    engine = Engine(BackendUnavailable("no network"), (FAILED,), ())
    async with layered(tmp_path, engine) as (made, clock):
        first = await started(made)
        assert first.image == "box"
        (failure,) = await made.ready(first, JQ, "sesn_1", again=True)
        assert (failure.package, failure.words) == ("jq", "no network")
        assert len(engine.sessions) == 1
        for image, left in (("sha256:layer-2", (FAILED,)), ("sha256:layer-3", ())):
            clock.seconds += 31
            assert await made.ready(first, JQ, "sesn_1", again=True) == left
            assert made.outdated(first)
            first = await started(made)
            assert first.image == image


async def test_newest_reason_is_told_as_long_as_there_is_no_image(tmp_path: Path) -> None:
    engine = Engine(*(BackendUnavailable(words) for words in ("no network", "no room")))
    async with layered(tmp_path, engine) as (made, clock):
        hand = await started(made)
        clock.seconds += 31
        (failure,) = await made.ready(hand, JQ, "sesn_1", again=True)
        assert failure.words == "no room"


async def test_image_counts_though_the_engine_removes_no_others(tmp_path: Path) -> None:
    engine = Engine(())
    engine.away = True
    async with layered(tmp_path, engine) as (made, _):
        hand = await started(made)
        assert hand.image == "sha256:layer-1"
        assert await made.ready(hand, JQ, "sesn_1", again=False) == ()
        assert made.settled(hand)


async def test_image_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    engine = Engine((), ())
    async with layered(tmp_path, engine) as (made, _):
        await started(made)
        engine.kept.clear()
        assert (await started(made)).image == "sha256:layer-2"


async def test_only_images_whose_mark_is_gone_are_removed(tmp_path: Path) -> None:
    engine = Engine(())
    async with layered(tmp_path, engine) as (made, _):
        hand = await started(made)
        (mark,) = made.used([hand])
        await made.pruned(["some other packages"])
        assert engine.kept
        (tmp_path / "packages" / mark).rmdir()
        await made.pruned([mark])
        assert not engine.kept


async def test_end_of_the_service_ends_builds(tmp_path: Path) -> None:
    engine = Engine(())
    engine.gate.clear()
    async with layered(tmp_path, engine) as (made, _):
        hand = await started(made)
        await made.close()
        await made.ready(hand, JQ, "sesn_1", again=True)
    assert engine.sessions == ["sesn_1"]


class Installer:
    """A sandbox in which these programs fail, each taking so many seconds of a clock."""

    def __init__(self, clock: HandSetClock, seconds: float = 0.0, fails: str = "") -> None:
        self.id, self.dead, self.ran, self.killed = "hand_1", asyncio.Event(), [], False
        self.access = SimpleNamespace(ready=self.ready)
        self._clock, self._seconds, self._fails = clock, seconds, fails
        self.launches = 0

    def assign(self, session_id: str) -> None:
        assert session_id == "sesn_1"

    async def ready(self) -> None:
        """At once."""

    async def run(self, _: str, call: Any) -> Reply:
        if self.dead.is_set():
            raise HandDied("it was killed")
        self.ran.append(call.input["arguments"][-1])
        self._clock.seconds += self._seconds
        words = ContentBlock()
        words.text.text = "E: no"
        failed = self._fails in call.input["arguments"]
        return Reply((words,), is_error=failed, cancelled=False, duration=timedelta())

    async def kill(self, _: str) -> None:
        self.killed = True
        self.dead.set()


async def built(
    tmp_path: Path,
    *listed: str,
    bounds: Bounds = SHORT,
    written: int = 0,
    room: int | None = None,
    **given: Any,
) -> tuple[Installer, Any]:
    clock, shelf = HandSetClock(), Shelf(tmp_path)
    shelf.start()
    made = SystemBuilder(Terms(shelf, bounds=bounds), clock=cast("Any", clock))
    installer, engine = Installer(clock, **given), Engine()
    engine.written, engine.room = written, room

    async def launch(*_: Any) -> Any:
        installer.launches += 1
        assert installer.launches == 1  # nothing is half installed here
        return installer

    packages = Packages((("apt", listed),), "wrkspc_1")
    outcome = await made.build(cast("Any", engine), "key", packages, "sesn_1", launch)
    assert installer.killed
    return installer, outcome


async def test_installing_that_takes_too_long_comes_to_nothing(tmp_path: Path) -> None:
    installer, (layer, failures) = await built(tmp_path, "jq", "curl", seconds=6.0, fails="jq")
    assert layer is None
    assert [one.package for one in failures] == ["jq", "curl"]
    assert {one.words for one in failures} == {"10 s are over (DROVER_HANDS_PACKAGES_SECONDS)"}
    assert installer.ran == ["update", "curl"]


async def test_time_that_ends_package_by_package_starts_no_more_sandboxes(tmp_path: Path) -> None:
    listed = ("jq", *(f"more-{number}" for number in range(20)))
    with pytest.raises(BackendUnavailable, match="10 s are over"):
        await built(tmp_path, *listed, seconds=3.0, fails="jq")


async def test_image_is_made_only_where_the_engines_disk_has_room_for_a_copy(
    tmp_path: Path,
) -> None:
    bounds = Bounds(seconds=10.0, free_bytes=50)
    for written, room in ((50, 100), (10**12, None)):  # None: which disk it is, is not known
        given = {"bounds": replace(bounds, disk_bytes=written), "written": written, "room": room}
        _, (layer, failures) = await built(tmp_path, "jq", **given)
        assert (layer.image, failures) == ("sha256:kept", ())
    with pytest.raises(BackendUnavailable, match="ended"):
        await built(tmp_path, "jq", bounds=bounds, written=51, room=100)


async def test_only_images_of_the_installations_own_names_are_removed() -> None:
    labels = {LAYER: "old"}
    images = [
        ("sha256:1", labels, ["drover-packages-me:old"]),
        ("sha256:2", labels, ["company/sandbox:1"]),
        ("sha256:3", {LAYER: "kept"}, ["drover-packages-me:kept"]),
        ("sha256:4", {LAYER: "kept"}, []),
        ("sha256:5", labels, ["<none>:<none>"]),
        ("sha256:6", {}, []),
    ]
    removed: list[str] = []

    class There:
        async def images(self, label: str) -> Any:
            assert label.endswith("=me")
            return images

        async def remove_image(self, name: str) -> None:
            removed.append(name)

    await DockerLayers(cast("Any", There()), "me").prune({"kept"})
    assert removed == ["sha256:1", "sha256:4", "sha256:5"]


async def test_indexes_that_cannot_be_read_are_read_once(tmp_path: Path) -> None:
    installer, (layer, failures) = await built(tmp_path, "jq", "curl", fails="update")
    assert layer is None
    assert [(one.package, one.words) for one in failures] == [("jq", "E: no"), ("curl", "E: no")]
    assert installer.ran == ["update"]


def test_system_packages_are_dockers_alone() -> None:
    asked = Packages((("apt", ("jq", "-o=x")), ("pip", ("numpy",))), "wrkspc_1")
    failures, left = domain.refused(asked, "docker")
    assert [one.package for one in failures] == ["-o=x"]
    assert (left.system.lists, left.beside.lists) == ((("apt", ("jq",)),), (("pip", ("numpy",)),))
    for kind in ("local", "kubernetes"):
        _, left = domain.refused(asked, kind)
        assert not left.system


def test_apt_is_told_its_way_out_and_takes_packages_as_arguments() -> None:
    network = {"http_proxy": "http://127.0.0.1:3128", "SSL_CERT_FILE": "/run/certificates"}
    told = [*apt.install(["jq", "curl=1.0"], network).arguments]
    assert told[0] == "apt-get"
    assert told[-3:] == ["--", "jq", "curl=1.0"]
    assert "--no-remove" in told
    for step in (apt.refresh(network), apt.install(["jq"], network)):
        assert "Acquire::http::Proxy=http://127.0.0.1:3128" in step.arguments
        assert "Acquire::https::CaInfo=/run/certificates" in step.arguments


async def test_container_that_somebody_runs_from_such_an_image_is_left_alone(
    tmp_path: Path,
) -> None:
    removed: list[str] = []

    class There:
        async def labelled(self, _: str) -> Any:
            return [("theirs", {HAND: ""}), ("left", {HAND: "hand_0"}), ("older", {})]

        async def remove(self, name: str) -> None:
            removed.append(name)

    backend = DockerBackend(tmp_path, EngineSettings("unix:///nowhere", "box"))
    await backend.close()
    backend._engine = cast("Any", There())
    await backend._sweep()
    assert removed == ["left", "older"]
