"""What is installed how, where it lies, who waits, and when it is tried again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.environment.v1.environment_pb2 import CloudConfig
from services.hands.backends import bubblewrap
from services.hands.backends.port import BackendUnavailable, PackagesMount, SandboxSpec, Volume
from services.hands.domain import packages as domain
from services.hands.domain.limits import Limits
from services.hands.domain.packages import NONE, UNLAYERED, Failure, Packages
from services.hands.domain.recipe import Recipe
from services.hands.packages.builder import Bounds, Terms
from services.hands.packages.installed import Installed
from services.hands.packages.settings import indexes
from services.hands.packages.shelf import Shelf
from tests.unit.hands.conftest import STANDARD, HandSetClock, World

PIP = Packages((("pip", ("numpy",)),), "wrkspc_1")
FAILED = Failure("pip", "numpy", "ERROR: no such thing")


def cloud(**lists: list[str]) -> CloudConfig:
    return CloudConfig(packages=cast("Any", lists))


def arguments(manager: str, *packages: str, index: str = "") -> list[list[str]]:
    return [[*step.arguments] for step in domain.steps(manager, packages, index)]


def test_managers_run_in_alphabetical_order() -> None:
    made = Packages.of(cloud(pip=["a"], apt=["b"], npm=["c"], cargo=["d"], go=["e"], gem=["f"]), "")
    assert [manager for manager, _ in made.lists] == ["apt", "cargo", "gem", "go", "npm", "pip"]
    assert Packages.of(CloudConfig(), "wrkspc_1") is NONE


def test_key_is_of_all_that_what_is_installed_depends_on() -> None:
    open_, limited = cloud(pip=["a", "b"]), cloud(pip=["a", "b"])
    limited.networking.limited.allow_package_managers = True
    made = [
        Packages.of(open_, "wrkspc_1").key("local", ""),
        Packages.of(open_, "wrkspc_1").key("docker", ""),
        Packages.of(open_, "wrkspc_1").key("docker", "team/box"),
        Packages.of(open_, "wrkspc_2").key("local", ""),
        Packages.of(limited, "wrkspc_1").key("local", ""),
        Packages.of(cloud(pip=["b", "a"]), "wrkspc_1").key("local", ""),
        Packages.of(cloud(npm=["a", "b"]), "wrkspc_1").key("local", ""),
    ]
    assert len(set(made)) == len(made)
    assert made[0] == Packages.of(cloud(pip=["a", "b"]), "wrkspc_1").key("local", "")


@pytest.mark.parametrize("manager", ["cargo", "npm", "pip"])
def test_packages_are_arguments_behind_the_end_of_options(manager: str) -> None:
    (told,) = arguments(manager, "a", "b", index="https://packages.example/x")
    assert told[-3:] == ["--", "a", "b"]
    assert f"/run/drover/packages/current/{manager}" in told
    assert any("https://packages.example/x" in word for word in told[:-3])


def test_gems_are_the_last_arguments_and_go_installs_one_by_one() -> None:
    (told,) = arguments("gem", "rake:13.0.0", index="https://packages.example")
    assert told[-1] == "rake:13.0.0"
    assert "--clear-sources" in told
    assert arguments("go", "a.example/x@v1", "a.example/y") == [
        ["go", "install", "--", "a.example/x@v1"],
        ["go", "install", "--", "a.example/y@latest"],
    ]
    (step,) = domain.steps("go", ["a.example/x"], "https://packages.example")
    assert step.variables["GOPROXY"] == "https://packages.example"
    assert step.variables["GOBIN"] == "/run/drover/packages/current/go/bin"


def test_commands_find_what_was_installed_before_what_the_system_has() -> None:
    lists = tuple((manager, ("a",)) for manager in ("apt", "gem", "npm", "pip"))
    found = domain.environment(Packages(lists), "/usr/bin")
    at = "/run/drover/packages/current"
    assert found["PATH"] == f"{at}/gem/bin:{at}/npm/bin:{at}/pip/bin:/usr/bin"
    assert found["PYTHONPATH"] == f"{at}/pip"
    assert found["NODE_PATH"] == f"{at}/npm/lib/node_modules"
    assert found["GEM_PATH"] == f"{at}/gem:"
    assert domain.environment(NONE, "/usr/bin") == {}


def test_what_no_sandbox_installs_is_said_and_the_rest_is_left() -> None:
    asked = Packages((("apt", ("jq",)), ("pip", ("numpy", "--evil"))))
    failures, left = domain.refused(asked, "local")
    assert [(one.manager, one.package) for one in failures] == [("apt", "jq"), ("pip", "--evil")]
    assert left.lists == (("pip", ("numpy",)),)
    failures, left = domain.refused(asked, "kubernetes")
    assert not left
    assert "packages of their image" in failures[1].error().message


def test_error_has_the_end_of_what_the_manager_said() -> None:
    error = Failure("pip", "numpy", "x" * 5000 + "the reason").error()
    assert error.WhichOneof("error") == "unknown_error"
    assert error.message.startswith("pip has not installed numpy")
    assert error.message.endswith("the reason")
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    "text",
    ["apt=https://x.example", "pip", "pip=http://x.example", "npm=https://u:p@x.example", "x=y"],
)
def test_indexes_are_https_urls_without_secrets(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        indexes(text)


def test_indexes_are_told_by_manager() -> None:
    assert indexes("pip=https://x.example/simple, npm=https://x.example/npm/") == {
        "pip": "https://x.example/simple",
        "npm": "https://x.example/npm/",
    }


def test_bubblewrap_mounts_packages_read_only_where_they_are_used(tmp_path: Path) -> None:
    for writable, how in ((False, "--ro-bind"), (True, "--bind")):
        mount = PackagesMount(tmp_path / "x", "/run/drover/packages", writable)
        spec = SandboxSpec("hand_1", Volume(tmp_path, None), Limits(), packages=mount)
        told = bubblewrap.arguments(spec, agent=tmp_path, etc=tmp_path, at=lambda path: path)
        at = told.index("/run/drover/packages")
        assert told[at - 2 : at] == [how, str(tmp_path / "x")]


# ---- where they lie


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path)
    made.start()
    return made


def test_build_is_found_only_once_it_is_published(shelf: Shelf) -> None:
    built = shelf.begin("key", "1", None)
    (built / "program").touch()
    assert shelf.failures("key") is None
    shelf.publish("key", built, (FAILED,))
    assert (shelf.place("key") / "current" / "program").exists()
    assert shelf.failures("key") == (FAILED,)


def test_what_a_dead_process_left_half_is_deleted_and_what_was_whole_is_kept(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.publish("key", shelf.begin("key", "1", None), ())
    half = shelf.begin("key", "2", None)
    (half / "directory").mkdir()
    (half / "directory" / "file").touch()
    (half / "directory").chmod(0o000)
    (half.parent / "current.new").symlink_to(half.name)
    alone = shelf.begin("other", "3", None)
    after = Shelf(tmp_path)
    after.start()
    assert sorted(os.listdir(half.parent)) == ["build-1", "build-1.json", "current"]  # noqa: PTH208
    assert not alone.exists()
    assert (after.failures("key"), after.failures("other")) == ((), None)


def test_build_that_was_replaced_stays_until_the_next_one(shelf: Shelf) -> None:
    for build in ("1", "2", "3"):
        shelf.publish("key", shelf.begin("key", build, None), ())
    names = {path.name for path in shelf.place("key").iterdir() if path.is_dir()}
    assert names == {"build-2", "build-3", "current"}


def test_what_nobody_uses_is_pruned(shelf: Shelf) -> None:
    for key in ("used", "old", "fresh"):
        shelf.publish(key, shelf.begin(key, "1", None), ())
    for key in ("used", "old"):
        os.utime(shelf.place(key), (0, 0))
    assert shelf.prune({"used"}, 60.0) == ["old"]
    assert shelf.failures("old") is None
    assert shelf.failures("used") == ()


# ---- who waits


class Builds:
    """Builds with these outcomes, each once `gate` is open."""

    def __init__(self, *outcomes: tuple[Failure, ...] | Exception) -> None:
        self.outcomes = [*outcomes]
        self.sessions: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def build(self, _key: str, _lists: Packages, session_id: str, _launch: Any) -> Any:
        self.sessions.append(session_id)
        await self.gate.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def hand() -> Any:
    given = {"packages": PIP, "packages_key": "key", "backend": "local", "image": ""}
    return SimpleNamespace(**given, layering=UNLAYERED, lacking=())


@asynccontextmanager
async def installing(shelf: Shelf, builds: Builds) -> AsyncIterator[tuple[Installed, HandSetClock]]:
    clock = HandSetClock()
    terms = Terms(shelf, wait_seconds=0.05, bounds=Bounds(keep_seconds=60.0))
    async with asyncio.TaskGroup() as tasks:
        given = (terms, cast("Any", builds), cast("Any", None), STANDARD)
        yield Installed(*given, tasks=tasks, clock=clock), clock


async def test_first_calls_share_one_build_and_later_ones_wait_for_nothing(shelf: Shelf) -> None:
    builds = Builds(())
    hands = [hand() for _ in range(5)]
    async with installing(shelf, builds) as (installed, _):
        assert not installed.settled(hands[0])
        await asyncio.gather(*(installed.ready(f"sesn_{n}", one) for n, one in enumerate(hands)))
        assert all(installed.settled(one) for one in hands)
        await installed.ready("sesn_9", hand(), again=True)
    assert builds.sessions == ["sesn_0"]
    assert not any(one.lacking for one in hands)


async def test_nobody_waits_for_ever_and_is_told_so(shelf: Shelf) -> None:
    builds, one = Builds(()), hand()
    builds.gate.clear()
    async with installing(shelf, builds) as (installed, _):
        await installed.ready("sesn_1", one)
        assert "still being installed" in one.lacking[0].message
        builds.gate.set()
        await installed.ready("sesn_1", one)
        assert one.lacking == ()


@pytest.mark.parametrize(
    "outcome", [(FAILED,), BackendUnavailable("no network"), OSError(28, "full")]
)
async def test_what_failed_is_tried_again_when_the_hand_is_asked_for_after_a_pause(
    shelf: Shelf, outcome: Any
) -> None:
    builds, one = Builds(outcome, ()), hand()
    async with installing(shelf, builds) as (installed, clock):
        await installed.ready("sesn_1", one)
        assert "pip has not installed numpy" in one.lacking[0].message
        await installed.ready("sesn_1", one)
        await installed.ready("sesn_1", one, again=True)
        assert len(builds.sessions) == 1
        clock.seconds += 31
        await installed.ready("sesn_1", one)
        assert len(builds.sessions) == 1
        await installed.ready("sesn_1", one, again=True)
        assert (len(builds.sessions), one.lacking) == (2, ())


async def test_what_an_earlier_process_has_installed_is_not_installed_again(shelf: Shelf) -> None:
    shelf.publish("key", shelf.begin("key", "1", None), ())
    builds, one = Builds(), hand()
    async with installing(shelf, builds) as (installed, _):
        await installed.ready("sesn_1", one)
        assert installed.settled(one)
    assert not builds.sessions


async def test_end_of_the_service_ends_builds(shelf: Shelf) -> None:
    builds, one = Builds(()), hand()
    builds.gate.clear()
    async with installing(shelf, builds) as (installed, _):
        await installed.ready("sesn_1", one)
        await installed.close()
        await installed.ready("sesn_1", one, again=True)
    assert builds.sessions == ["sesn_1"]


async def test_pool_without_a_place_for_packages_starts_no_sandbox_for_them(world: World) -> None:
    with pytest.raises(BackendUnavailable, match="no packages"):
        await world.pool.prepare("sesn_1", Recipe(packages=PIP))
