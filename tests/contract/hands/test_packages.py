"""Packages of environments, installed by the real managers from indexes of the tests' own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chassis.ids import new_id
from services.hands.domain.limits import MIB
from services.hands.domain.recipe import Recipe
from services.hands.packages.builder import Bounds
from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT
from tests.doubles.hands_stack import Sandboxes, printed, text
from tests.doubles.package_stage import PackageStage, lacking, listing, package_stage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]
BOTH = listing(npm=("greeter",), pip=("alpha==1.0.0",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PackageStage]:
    async with package_stage(Sandboxes("local"), tmp_path_factory.mktemp("packages")) as made:
        yield made


async def test_packages_are_installed_once_for_all_sessions_of_an_environment(
    stage: PackageStage,
) -> None:
    use = (
        "alpha && python3 -c 'import alpha, beta; beta.main()' && "
        "greeter && node -p 'require(\"greeter\")'"
    )
    first, second = await asyncio.gather(
        stage.run(use, session_id="sesn_1", recipe=BOTH),
        stage.run(use, session_id="sesn_2", recipe=BOTH),
    )
    for result in (first, second):
        assert not result.errors, result.errors
        assert printed(result).splitlines() == [
            *("hello from alpha", "hello from beta", "hello from greeter", "hello from greeter")
        ]
    assert len([path for path in stage.index.asked if path.endswith(".whl")]) == 2
    asked = len(stage.index.asked)
    third = await stage.run(use, session_id="sesn_3", recipe=BOTH)
    assert printed(third) == printed(first)
    assert len(stage.index.asked) == asked


async def test_other_environments_find_nothing_of_it(stage: PackageStage) -> None:
    for recipe in (Recipe(), listing(pip=("beta",))):
        result = await stage.run("alpha", session_id=new_id("sesn"), recipe=recipe)
        assert "command not found" in text(result)


async def test_sandboxes_cannot_change_what_others_run(stage: PackageStage) -> None:
    command = "echo x >>$(which alpha); rm -rf /run/drover/packages/*; alpha"
    result = await stage.run(command, session_id="sesn_1", recipe=BOTH)
    assert "Read-only file system" in text(result)
    assert text(result).endswith("hello from alpha")


async def test_package_that_fails_is_named_and_the_session_goes_on_without(
    stage: PackageStage,
) -> None:
    recipe = listing(npm=("nowhere",), pip=("alpha", "gamma"))
    result = await stage.run("alpha", session_id="sesn_5", recipe=recipe)
    assert text(result) == "hello from alpha"
    npm, pip = result.errors
    assert npm.WhichOneof("error") == pip.WhichOneof("error") == "unknown_error"
    assert "npm has not installed nowhere" in npm.message
    assert "404" in npm.message
    assert "pip has not installed gamma" in pip.message
    assert "No matching distribution" in pip.message
    asked = len(stage.index.asked)
    await stage.run("alpha", session_id="sesn_5", recipe=recipe)
    assert len(stage.index.asked) == asked  # calls do not try again, whoever asks for the hand does
    stage.index.add_wheel("gamma")
    stage.index.add_tarball("nowhere")
    hand, _ = await stage.hands.executor.provision("sesn_5", 1, recipe)
    assert not hand.lacking
    result = await stage.run("gamma && nowhere", session_id="sesn_5", recipe=recipe)
    assert (text(result), [*result.errors]) == ("hello from gamma\nhello from nowhere", [])


async def test_what_the_networking_forbids_is_not_installed_and_is_in_the_trail(
    stage: PackageStage,
) -> None:
    stage.world.sessions[GRANT], before = session(allowed=[]), stage.world.sessions[GRANT]
    stage.world.trail.clear()
    try:
        fresh = listing(npm=("greeter",))
        result = await stage.run("greeter", session_id="sesn_7", recipe=fresh)
    finally:
        stage.world.sessions[GRANT] = before
    (error,) = result.errors
    assert "npm has not installed greeter" in error.message
    assert "403" in error.message
    assert ("denied", "host_not_allowed") in stage.world.verdicts


async def test_code_of_a_package_runs_under_the_protections_of_any_sandbox(
    stage: PackageStage,
) -> None:
    script = "id -u >uid; ls /root >root 2>&1; touch /usr/x 2>>root; env >variables; true"
    stage.add_script("nosy", script)
    command = "cd $NODE_PATH/nosy && cat uid root && grep -c _PROXY variables; ls -d $PWD"
    result = await stage.run(command, session_id="sesn_8", recipe=listing(npm=("nosy",)))
    assert not result.errors, result.errors
    lines = text(result).splitlines()
    assert lines[0] == "1000"
    assert "Read-only file system" in text(result)
    assert lines[-1] == "/run/drover/packages/current/npm/lib/node_modules/nosy"


async def test_apt_is_refused_by_name_and_the_rest_is_there(stage: PackageStage) -> None:
    recipe = listing(apt=("jq",), pip=("alpha",))
    result = await stage.run("alpha", session_id="sesn_9", recipe=recipe)
    assert text(result) == "hello from alpha"
    (error,) = result.errors
    assert "apt has not installed jq" in error.message
    assert "needs root" in error.message


@pytest.mark.parametrize(
    ("bounds", "script", "why"),
    [
        (Bounds(seconds=3.0), "", "3 s are over (DROVER_HANDS_PACKAGES_SECONDS)"),
        (
            Bounds(disk_bytes=32 * MIB),
            "head -c 64M /dev/zero >x; ",
            "more of the disk than DROVER_HANDS_PACKAGES_MIB",
        ),
    ],
    ids=["time", "disk"],
)
async def test_what_takes_too_much_is_ended_and_nothing_of_it_stays(
    tmp_path_factory: pytest.TempPathFactory, bounds: Bounds, script: str, why: str
) -> None:
    place = tmp_path_factory.mktemp("bounded")
    async with package_stage(Sandboxes("local"), place, bounds) as stage:
        stage.add_script("greedy", f"{script}sleep 1000")
        recipe = listing(npm=("greedy",))
        result = await stage.run("echo on", session_id="sesn_1", recipe=recipe)
        assert text(result) == "on"
        (error,) = result.errors
        assert error.message.endswith(why)
        assert not [*(place / "hands/packages").glob("*/*")]
        assert not [*(place / "hands/spares").glob("*.gone")]
