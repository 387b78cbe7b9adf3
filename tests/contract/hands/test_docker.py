"""What the docker backend promises beside what every backend does (CASES S14, F6)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_NOT_RUN, VERDICT_OUTCOME_UNKNOWN
from services.hands.backends.docker import container
from services.hands.backends.docker import engine as client
from services.hands.backends.docker.backend import DockerBackend
from services.hands.backends.docker.settings import EngineSettings
from services.hands.backends.port import BackendUnavailable, SandboxSpec
from services.hands.domain.limits import MIB
from services.hands.domain.recipe import Recipe
from services.hands.workspace import Workspaces
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.engine_peer import Peer, proxied
from tests.doubles.engine_proxy import Proxy
from tests.doubles.hands_stack import (
    SMALL,
    HandsStack,
    Sandboxes,
    contained,
    hands_stack,
    running,
    text,
)
from tests.doubles.hands_waiting import eventually


@pytest.fixture
def sandboxes(engine_proxy: Proxy) -> Sandboxes:
    return Sandboxes("docker", engine_proxy.host)


def container_of(hands: HandsStack, session_id: str = "sesn_1") -> str:
    sandbox: Any = hands.pool._seats[session_id].hand.result()._sandbox
    return str(sandbox._id)


async def test_missing_image_says_how_to_build_it(hands: HandsStack) -> None:
    given = ("sesn_1", "c1", 1, "bash", '{"command":"true"}')
    result = await hands.executor.execute(*given, recipe=Recipe(image="team/none"))
    assert result.verdict == VERDICT_NOT_RUN
    assert "no image team/none, and none is fetched: build it with `docker build" in text(result)


async def test_volume_that_the_engine_does_not_have_is_told_of(docker_engine: Engine) -> None:
    settings = EngineSettings(docker_engine.host, IMAGE, volume="drover_none")
    backend = DockerBackend(Path("/nowhere"), settings)
    with pytest.raises(BackendUnavailable, match="no volume drover_none: name the one that"):
        await backend.system("docker", "")
    await backend.close()


async def test_image_that_cannot_run_the_agent_says_what_it_lacks(
    hands: HandsStack, docker_engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY nothing /nothing\n")
    (tmp_path / "nothing").touch()
    docker_engine.docker("build", "--quiet", "--tag", "team/empty", str(tmp_path))
    given = ("sesn_1", "c1", 1, "bash", '{"command":"true"}')
    result = await hands.executor.execute(*given, recipe=Recipe(image="team/empty"))
    assert "the image team/empty has no python3" in text(result)
    assert not left(docker_engine, hands)


async def test_without_an_engine_it_says_where_it_looked(tmp_path: Path) -> None:
    nowhere = Sandboxes("docker", f"unix://{tmp_path}/none.sock")
    async with nowhere.stack(tmp_path) as hands:
        result = await hands.run("bash", command="true")
        assert result.verdict == VERDICT_NOT_RUN
        assert f"no container engine answers at unix://{tmp_path}/none.sock" in text(result)


async def test_proxy_without_an_engine_is_told_from_one_that_refuses(tmp_path: Path) -> None:
    async with proxied(Peer(), tmp_path) as proxy:
        engine = client.Engine(f"unix://{proxy}", threads=1, seconds=5)
        await engine.about()
        (tmp_path / "engine").unlink()
        with pytest.raises(client.EngineAway, match="no container engine answers behind unix:"):
            await engine.remove("drover-hand_1")
        await engine.close()


async def test_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    path = tmp_path / "s"
    server = await asyncio.start_unix_server(silent, path)
    async with server:
        backend = Sandboxes("docker", f"unix://{path}").backend(tmp_path / "hands", seconds=0.2)
        await backend.start()
        workspaces = Workspaces(tmp_path / "hands", privileged=os.geteuid() == 0)
        await workspaces.start()
        spec = SandboxSpec("hand_1", await workspaces.make("sesn_1"), SMALL)
        with pytest.raises(BackendUnavailable, match=r"did not answer in 0\.2 s"):
            await backend.launch(spec)
        await backend.close()


async def test_running_out_of_memory_is_told_from_being_killed(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    # What is in /tmp counts and nobody holds it: once it is full, all that runs must go.
    limits = replace(SMALL, memory_bytes=48 * MIB, tmp_bytes=512 * MIB)
    async with sandboxes.stack(tmp_path, limits=limits) as hands:
        killed = await hands.run("bash", command="kill -9 $PPID; sleep 100")
        assert killed.verdict == VERDICT_OUTCOME_UNKNOWN
        assert "memory" not in text(killed)
        for _ in range(20):
            result = await hands.run("bash", command="head -c 300M /dev/zero >>/tmp/x; true")
            if result.verdict == VERDICT_OUTCOME_UNKNOWN:
                break
        assert "it used more memory than it may" in text(result)


async def test_container_removed_from_outside_is_told_and_replaced(
    hands: HandsStack, docker_engine: Engine
) -> None:
    await hands.bash("echo kept >f")
    asked = asyncio.create_task(hands.run("bash", command="touch begun; sleep 1000"))
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    await eventually((volume.root / "workspace" / "begun").exists)
    await asyncio.to_thread(docker_engine.docker, "rm", "--force", container_of(hands))
    assert (await asked).verdict == VERDICT_OUTCOME_UNKNOWN
    assert await hands.bash("cat f") == "kept"


async def test_container_that_a_dead_service_left_is_removed_by_the_next_before_it_serves(
    docker_engine: Engine, tmp_path: Path
) -> None:
    sandboxes = Sandboxes("docker", docker_engine.host)  # whose containers the test itself makes
    async with sandboxes.stack(tmp_path) as hands:
        await hands.bash("true")
        installation = hands.backend._installation
    other = docker_engine.docker("create", "--label", f"{container.INSTALLATION}=other", IMAGE)
    ours = docker_engine.docker(
        *("run", "--detach", "--network", "none"),
        *("--label", f"{container.INSTALLATION}={installation}", IMAGE, "sleep", "1000"),
    )
    processes = contained(ours)
    assert processes
    backend = sandboxes.backend(tmp_path / "hands")
    await backend.start()
    assert not any(map(running, processes))
    assert not docker_engine.docker("ps", "-aq", "--filter", f"id={ours}")
    assert docker_engine.docker("ps", "-aq", "--filter", f"id={other}")
    await backend.close()
    docker_engine.docker("rm", other)


async def test_installations_whose_sandboxes_have_the_same_user_do_not_starve_each_other(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    limits = replace(SMALL, processes=40)
    command = "for _ in $(seq 25); do sleep 1000 & done; jobs | wc -l"
    async with (
        sandboxes.stack(tmp_path / "one", limits=limits) as one,
        sandboxes.stack(tmp_path / "other", limits=limits) as other,
    ):
        assert await one.bash("id -u") == await other.bash("id -u")
        for hands in (one, other):
            assert await hands.bash(command) == "25"


async def test_host_that_lets_go_of_the_stream_ends_the_sandbox(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    """As when its hands process is killed: nothing goes on without it."""
    backend = sandboxes.backend(tmp_path / "hands")
    await backend.start()
    workspaces = Workspaces(tmp_path / "hands", privileged=os.geteuid() == 0)
    await workspaces.start()
    spec = SandboxSpec("hand_1", await workspaces.make("sesn_1"), SMALL)
    sandbox = await backend.launch(spec)
    processes = contained(sandbox._id)
    assert processes
    sandbox.writer.transport.abort()
    await eventually(lambda: not any(map(running, processes)))
    await sandbox.kill()
    await backend.close()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[HandsStack, Path]]:
    async with hands_stack(tmp_path) as hands:
        await hands.bash("head -c 100000 /dev/urandom >data; ln -s data link; mkdir -p a/b")
        yield hands, tmp_path


async def test_workspace_goes_from_one_backend_to_the_other_byte_for_byte(
    both: tuple[HandsStack, Path], sandboxes: Sandboxes
) -> None:
    hands, directory = both
    sum_command = "cat link | sha256sum; find . | sort"
    before = await hands.bash(sum_command)
    await hands.executor.release("sesn_1")
    workspaces = hands.pool._workspaces
    backend = sandboxes.backend(directory / "hands")
    hands.pool._backend = backend
    await backend.start()
    assert workspaces.find("sesn_1") is not None
    assert await hands.bash(sum_command) == before
    await hands.executor.release("sesn_1")
    await backend.close()


async def test_engine_killed_in_a_call_leaves_nothing_running_and_the_work_is_there(
    own_engine: Engine, tmp_path: Path
) -> None:
    """F6, with the engine gone too: what cannot be asked for is killed all the same."""
    async with Sandboxes("docker", own_engine.host).stack(tmp_path) as hands:
        await hands.bash("echo kept >f")
        asked = asyncio.create_task(hands.run("bash", command="touch begun; sleep 1000"))
        volume = hands.pool._workspaces.find("sesn_1")
        assert volume is not None
        await eventually((volume.root / "workspace" / "begun").exists)
        processes = hands.processes()
        await asyncio.to_thread(own_engine.kill)
        result = await asked
        assert result.verdict == VERDICT_OUTCOME_UNKNOWN
        assert "no container engine answers" in text(result)
        assert not any(map(running, processes))
        waiting = asyncio.create_task(hands.bash("cat f"))
        await asyncio.to_thread(own_engine.start)
        assert await waiting == "kept"
        assert len(left(own_engine, hands).split()) == 1


def left(engine: Engine, hands: HandsStack) -> str:
    label = f"label={container.INSTALLATION}={hands.backend._installation}"
    return engine.docker("ps", "--all", "--quiet", "--filter", label)
