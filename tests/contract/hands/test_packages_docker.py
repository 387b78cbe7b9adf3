"""Packages of environments in containers, by the managers of their image."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.hands.domain.recipe import Recipe
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.engine_proxy import Proxy
from tests.doubles.hands_stack import Sandboxes, text
from tests.doubles.package_stage import PIP, PackageStage, lacking, listing, package_stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    engine_proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PackageStage]:
    kind = Sandboxes("docker", engine_proxy.host)
    async with package_stage(kind, tmp_path_factory.mktemp("packages")) as made:
        yield made


@pytest.fixture(scope="module")
def image(docker_engine: Engine) -> str:
    """The tests' image, with pip."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(PIP, "usr/lib/python3/dist-packages/pip", filter=_sources)
    return docker_engine.add_to_image(IMAGE, packed.getvalue(), "test/with-pip")


def _sources(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.mode |= 0o555 if entry.isdir() else 0o444
    return None if "__pycache__" in entry.name else entry


async def test_packages_are_installed_once_and_found_by_all_containers_of_the_image(
    stage: PackageStage, image: str
) -> None:
    recipe = listing(image=image, pip=("alpha",))
    use = "alpha && python3 -c 'import beta; beta.main()'"
    for session_id in ("sesn_1", "sesn_2"):
        result = await stage.run(use, session_id=session_id, recipe=recipe)
        assert text(result) == "hello from alpha\nhello from beta", result.errors
    assert len([path for path in stage.index.asked if path.endswith(".whl")]) == 2
    result = await stage.run("touch /run/drover/packages/x", session_id="sesn_1", recipe=recipe)
    assert "Read-only file system" in text(result)
    other = await stage.run("alpha", session_id="sesn_3", recipe=Recipe(image=image))
    assert "command not found" in text(other)


async def test_image_of_the_same_name_is_another_system(
    stage: PackageStage, docker_engine: Engine, image: str
) -> None:
    """What was built for one Python may not run on the next."""
    docker_engine.docker("tag", image, "test/box")
    before = await stage.hands.backend.system("docker", "test/box")
    docker_engine.docker("tag", IMAGE, "test/box")
    assert await stage.hands.backend.system("docker", "test/box") != before
    assert await stage.hands.backend.system("docker", image) == before


async def test_manager_that_the_image_has_not_is_named(stage: PackageStage) -> None:
    recipe = listing(cargo=("ripgrep",))
    result = await stage.run("echo on", session_id="sesn_4", recipe=recipe)
    assert text(result) == "on"
    (error,) = result.errors
    assert "cargo has not installed ripgrep" in error.message
    assert "the sandbox has no cargo" in error.message
