"""Packages of the system: installed by root once, and found by containers without any."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from services.hands.backends.docker.layers import LAYER
from services.hands.domain.limits import MIB
from services.hands.packages.builder import Bounds
from tests.doubles.apt_repository import AptRepository, apt_repository, lacking, with_apt
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.hands_stack import Sandboxes, printed, text
from tests.doubles.package_stage import PackageStage, listing, package_stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]
STATUS = "grep -hE '^(Cap(Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status"
NOSY = f"(id -u; {STATUS}; ls /sys/class/net /workspace /mnt/session; env) >/usr/share/nosy"


@pytest.fixture(scope="module")
def repository() -> Iterator[AptRepository]:
    with apt_repository() as made:
        made.add("hello-one")
        made.add("hello-two")
        made.add("nosy", script=NOSY)
        made.add("broken", script="echo it is not to be >&2; exit 3")
        made.add("greedy", script="head -c 64M /dev/zero >/usr/share/x; sleep 1000")
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    docker_engine: Engine, repository: AptRepository, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PackageStage]:
    kind = Sandboxes("docker", docker_engine.host)
    async with package_stage(kind, tmp_path_factory.mktemp("packages")) as made:
        made.index.files = repository.files
        yield made


@pytest.fixture(scope="module")
def image(docker_engine: Engine, repository: AptRepository, stage: PackageStage) -> str:
    """The tests' image, with apt."""
    packed = with_apt(f"{stage.index.url}/apt", repository.key)
    return docker_engine.add_to_image(IMAGE, packed, "test/with-apt")


def layers(engine: Engine) -> set[str]:
    """All images that were made of others for packages, named or not."""
    return set(engine.docker("images", "--quiet", "--filter", f"label={LAYER}").split())


async def test_system_packages_are_installed_once_for_all_sessions_of_an_environment(
    stage: PackageStage, image: str
) -> None:
    recipe = listing(image=image, apt=("hello-one", "hello-two=1.0.0"))
    for session_id in ("sesn_1", "sesn_2"):
        result = await stage.run("hello-one && hello-two", session_id=session_id, recipe=recipe)
        assert text(result) == "hello from hello-one\nhello from hello-two"
        assert not result.errors
    assert len([path for path in stage.index.asked if path.endswith(".deb")]) == 2
    command = "id -u; touch /usr/x; find / -xdev -perm /6000; find /var/lib/apt/lists -type f"
    seen = text(await stage.run(command, session_id="sesn_1", recipe=recipe)).splitlines()
    assert seen[0] != "0"
    assert "Read-only file system" in seen[1]
    assert not [line for line in seen[2:] if line.startswith("/")]
    other = listing(image=image, apt=("hello-one",))
    result = await stage.run("hello-two", session_id="sesn_3", recipe=other)
    assert "command not found" in text(result)


async def test_installer_is_root_of_its_own_container_and_of_nothing_else(
    stage: PackageStage, image: str
) -> None:
    recipe = listing(image=image, apt=("nosy",))
    result = await stage.run("cat /usr/share/nosy", session_id="sesn_4", recipe=recipe)
    assert not result.errors, result.errors
    lines = printed(result).splitlines()
    assert lines[0] == "0"
    held = dict(line.split(":\t") for line in lines[1:5])
    # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETGID, CAP_SETUID
    assert {int(held["CapEff"], 16), int(held["CapBnd"], 16)} == {0b11001011}
    assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", "2")
    assert lines[5:11] == ["/mnt/session:", "", "/sys/class/net:", "lo", "", "/workspace:"]
    assert not [line for line in lines if "PLACEHOLDER" in line.upper()]


async def test_package_that_fails_is_named_and_the_others_are_there_until_it_is_mended(
    stage: PackageStage, image: str, repository: AptRepository, docker_engine: Engine
) -> None:
    recipe = listing(image=image, apt=("broken", "hello-one", "nowhere", "hello-two"), npm=("x",))
    result = await stage.run("hello-one && hello-two", session_id="sesn_5", recipe=recipe)
    assert text(result) == "hello from hello-one\nhello from hello-two"
    broken, nowhere, npm = result.errors
    assert "apt has not installed broken" in broken.message
    assert "it is not to be" in broken.message
    assert "Unable to locate package nowhere" in nowhere.message
    assert "npm has not installed x" in npm.message
    before = layers(docker_engine)
    repository.add("broken")
    repository.add("nowhere")
    await stage.hands.executor.provision("sesn_5", 1, recipe)
    result = await stage.run("broken && nowhere", session_id="sesn_5", recipe=recipe)
    assert printed(result) == "hello from broken\nhello from nowhere"
    assert [one for one in result.errors if "apt" in one.message] == []
    assert len(layers(docker_engine) | before) == len(before) + 1


async def test_images_that_nobody_uses_are_removed_and_made_again_when_they_are(
    stage: PackageStage, image: str, docker_engine: Engine
) -> None:
    recipe = listing(image=image, apt=("hello-one",))
    await stage.run("hello-one", session_id="sesn_6", recipe=recipe)
    packages, made = stage.hands.pool.packages, layers(docker_engine)
    assert packages is not None
    for session_id in [*stage.hands.pool.live()]:
        await stage.hands.pool.release(session_id)
    place = packages._shelf.directory
    for path in place.glob("layer-*"):
        os.utime(path, (0, 0))
    packages._prune_at = 0.0
    await packages.tend(())
    assert made
    assert not layers(docker_engine)
    assert not [*place.glob("layer-*")]
    result = await stage.run("hello-one", session_id="sesn_6", recipe=recipe)
    assert printed(result) == "hello from hello-one"


async def test_image_that_somebody_has_removed_is_made_again(
    stage: PackageStage, image: str, docker_engine: Engine
) -> None:
    recipe, before = listing(image=image, apt=("hello-two",)), layers(docker_engine)
    await stage.run("true", session_id="sesn_7", recipe=recipe)
    await stage.hands.pool.release("sesn_7")
    docker_engine.docker("rmi", "--force", *(layers(docker_engine) - before))
    result = await stage.run("hello-two", session_id="sesn_8", recipe=recipe)
    assert text(result) == "hello from hello-two"


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (Bounds(seconds=3.0), "3 s are over (DROVER_HANDS_PACKAGES_SECONDS)"),
        (Bounds(disk_bytes=32 * MIB), "more of the disk than DROVER_HANDS_PACKAGES_MIB"),
    ],
    ids=["time", "disk"],
)
async def test_what_takes_too_much_is_ended_and_no_image_is_made_of_it(
    docker_engine: Engine,
    repository: AptRepository,
    tmp_path_factory: pytest.TempPathFactory,
    bounds: Bounds,
    why: str,
) -> None:
    kind, place = Sandboxes("docker", docker_engine.host), tmp_path_factory.mktemp("bounded")
    async with package_stage(kind, place, bounds) as stage:
        stage.index.files = repository.files
        packed = with_apt(f"{stage.index.url}/apt", repository.key)
        image = docker_engine.add_to_image(IMAGE, packed, "test/bounded")
        before = layers(docker_engine)
        recipe = listing(image=image, apt=("greedy",))
        result = await stage.run("echo on", session_id="sesn_1", recipe=recipe)
        assert text(result) == "on"
        (error,) = result.errors
        assert error.message.endswith(why)
        assert layers(docker_engine) == before
        names = docker_engine.docker("ps", "--all", "--format", "{{.Image}}").split()
        assert names.count(image) == 1  # the session's
