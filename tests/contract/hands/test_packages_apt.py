"""Packages of the system: installed by root once, and found by containers without any."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from services.hands.backends.docker.container import INSTALLATION
from services.hands.domain import apt
from services.hands.domain.limits import MIB
from services.hands.domain.recipe import Recipe
from services.hands.egress import variables
from services.hands.packages.builder import Bounds
from tests.doubles.apt_repository import AptRepository, apt_repository, lacking, with_apt
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.engine_proxy import Proxy
from tests.doubles.hands_stack import Sandboxes, printed, text
from tests.doubles.hands_waiting import eventually
from tests.doubles.package_stage import PackageStage, listing, package_stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]
STATUS = "grep -hE '^(Cap(Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status"
NOSY = f"(id -u; {STATUS}; ls /sys/class/net /workspace /mnt/session; env) >/usr/share/nosy"


CARGO = """to=/run/drover/packages/current/cargo/bin
mkdir -p $to && cp /usr/bin/hello-one $to/ripgrep
"""


@pytest.fixture(scope="module")
def repository() -> Iterator[AptRepository]:
    with apt_repository() as made:
        made.add("hello-one")
        made.add("cargo", program=CARGO)
        made.add("nosy", script=f"groupadd bar || exit 1; {NOSY}")
        made.add("broken", script="echo it is not to be >&2; exit 3")
        made.add("greedy", script="head -c 64M /dev/zero >/usr/share/x; sleep 1000")
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    engine_proxy: Proxy, repository: AptRepository, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PackageStage]:
    kind = Sandboxes("docker", engine_proxy.host)
    async with package_stage(kind, tmp_path_factory.mktemp("packages"), spares=0) as made:
        made.index.files = repository.files
        yield made


@pytest.fixture(scope="module")
def recipe(docker_engine: Engine, repository: AptRepository, stage: PackageStage) -> Recipe:
    """Packages for the tests' image with apt."""
    packed = with_apt(f"{stage.index.url}/apt", repository.key)
    image = docker_engine.add_to_image(IMAGE, packed, "test/with-apt")
    return listing(image=image, apt=("hello-one=1.0.0", "cargo", "nosy"), cargo=("ripgrep",))


def layers(stage: PackageStage, engine: Engine) -> set[str]:
    """All images that the hands have made of others, named or not."""
    label = f"label={INSTALLATION}={stage.hands.backend._installation}"
    return set(engine.docker("images", "--quiet", "--filter", label).split())


async def test_system_packages_are_installed_once_and_before_those_of_other_managers(
    stage: PackageStage, recipe: Recipe
) -> None:
    for session_id in ("sesn_1", "sesn_2"):
        result = await stage.run("hello-one && ripgrep", session_id=session_id, recipe=recipe)
        assert text(result) == "hello from hello-one\nhello from hello-one"
        assert not result.errors
    assert len([path for path in stage.index.asked if path.endswith(".deb")]) == 3


async def test_sandboxes_are_as_any_other_and_only_their_image_is_another(
    stage: PackageStage, recipe: Recipe
) -> None:
    command = "id -u; touch /usr/x; find / -xdev -perm /6000; find /var/lib/apt/lists -type f"
    seen = text(await stage.run(command, session_id="sesn_1", recipe=recipe)).splitlines()
    assert seen[0] != "0"
    assert "Read-only file system" in seen[1]
    assert not [line for line in seen[2:] if line.startswith("/")]


async def test_installer_is_root_of_its_own_container_and_of_nothing_else(
    stage: PackageStage, recipe: Recipe
) -> None:
    result = await stage.run("cat /usr/share/nosy", session_id="sesn_1", recipe=recipe)
    lines = printed(result).splitlines()
    assert lines[0] == "0"
    held = dict(line.split(":\t") for line in lines[1:5])
    # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETGID, CAP_SETUID
    assert {int(held["CapEff"], 16), int(held["CapBnd"], 16)} == {0b11001011}
    assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", "2")
    assert lines[5:11] == ["/mnt/session:", "", "/sys/class/net:", "lo", "", "/workspace:"]
    shown = dict(line.split("=", 1) for line in lines[11:] if not line.startswith("DPKG_"))
    # Of a host, a service or a session there is nothing.
    apts = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PWD": "/"}
    ours = apt.ENVIRONMENT | variables.NETWORK | apts
    assert shown.items() <= ours.items()
    assert shown["USER"] == "root"


async def test_room_is_looked_for_on_the_disk_that_the_engine_writes_to(
    stage: PackageStage, docker_engine: Engine
) -> None:
    made = await stage.hands.backend.layers("docker")
    assert made._directory == docker_engine.directory / "data"
    assert made.free() > 0


async def test_package_that_fails_is_named_and_the_others_are_there_until_it_is_mended(
    stage: PackageStage, recipe: Recipe, repository: AptRepository, docker_engine: Engine
) -> None:
    before = layers(stage, docker_engine)
    asked = listing(image=recipe.image, apt=("broken", "hello-one", "nowhere"))
    result = await stage.run("hello-one", session_id="sesn_5", recipe=asked)
    assert text(result) == "hello from hello-one"
    broken, nowhere = result.errors
    assert broken.WhichOneof("error") == "unknown_error"
    assert "apt has not installed broken" in broken.message
    assert "it is not to be" in broken.message
    assert "Unable to locate package nowhere" in nowhere.message
    repository.add("broken")
    repository.add("nowhere")
    await stage.hands.executor.provision("sesn_5", 1, asked)
    result = await stage.run("broken && nowhere", session_id="sesn_5", recipe=asked)
    assert printed(result) == "hello from broken\nhello from nowhere"
    assert not result.errors
    assert len(layers(stage, docker_engine) - before) == 2  # the sandbox before it had the other


async def test_start_whose_image_is_removed_while_it_waits_has_it_made_again(
    stage: PackageStage, recipe: Recipe, docker_engine: Engine
) -> None:
    asked = listing(image=recipe.image, apt=("hello-one",))
    await stage.run("hello-one", session_id="sesn_7", recipe=asked)
    made = stage.hands.pool.live()["sesn_7"].image
    await stage.hands.pool.release("sesn_7")
    turns = stage.hands.pool._starter._turns
    async with AsyncExitStack() as others:
        for _ in range(turns._free):
            await others.enter_async_context(turns.turn())
        waiting = stage.run("hello-one", session_id="sesn_7", recipe=asked)
        result = asyncio.ensure_future(waiting)
        await eventually(lambda: turns._sessions)
        docker_engine.docker("rmi", made)
    assert printed(await result) == "hello from hello-one"


async def test_what_takes_too_much_is_ended_and_no_image_is_made_of_it(
    stage: PackageStage,
    recipe: Recipe,
    docker_engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages: Any = stage.hands.pool.packages
    monkeypatch.setattr(packages._layers._builder, "_bounds", Bounds(disk_bytes=32 * MIB))
    before = layers(stage, docker_engine)
    asked = listing(image=recipe.image, apt=("hello-one", "greedy"))
    result = await stage.run("hello-one || echo on", session_id="sesn_6", recipe=asked)
    assert "command not found" in text(result)  # nor is it in the image that others are made of
    assert text(result).endswith("on")
    (error,) = result.errors
    assert error.message.endswith("more of the disk than DROVER_HANDS_PACKAGES_MIB")
    assert layers(stage, docker_engine) <= before
    label = f"label={INSTALLATION}={stage.hands.backend._installation}"
    there = docker_engine.docker("ps", "--all", "--filter", label, "--format", "{{.Names}}")
    assert set(there.split()) == {f"drover-{hand.id}" for hand in stage.hands.pool.hands()}


async def test_images_that_no_sandbox_is_started_from_are_removed(
    stage: PackageStage, docker_engine: Engine
) -> None:
    *released, kept = [*stage.hands.pool.live()]
    assert kept == "sesn_6"
    for session_id in released:
        await stage.hands.pool.release(session_id)
    packages: Any = stage.hands.pool.packages
    for path in packages._shelf.directory.iterdir():
        os.utime(path, (0, 0))
    assert layers(stage, docker_engine)
    await packages.tend(stage.hands.pool.hands())
    assert not layers(stage, docker_engine)
    (used,) = packages._shelf.directory.iterdir()
    assert used.name.startswith("layer-")
