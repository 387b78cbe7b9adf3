"""The service dies while it installs packages: nothing of them is left half (P3)."""

from __future__ import annotations

import asyncio
import io
import signal
import tarfile
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.backends.docker.container import INSTALLATION
from services.hands.settings import HandsSettings
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.hands_stack import Sandboxes, contained, running
from tests.doubles.hands_waiting import eventually
from tests.integration.hands.conftest import HandsProcess, call
from tests.integration.hands.test_process_killed import tree

NOBODY = "127.0.0.1:1"


async def test_killed_service_leaves_no_packages_half_and_nothing_that_installs_them(
    settings: HandsSettings,
) -> None:
    process = HandsProcess(
        settings.data_dir,
        DROVER_VAULT_PROXY_ADDRESS=NOBODY,
        DROVER_EGRESS_ADDRESS=NOBODY,
        DROVER_HANDS_SPARE_SANDBOXES="0",
    )
    await process.start()
    request = call("c1", command="true")
    request.environment.cloud.packages.pip.append("numpy")
    asked = asyncio.ensure_future(_result(process.client, request))
    place = settings.data_dir / "hands" / "packages"
    await eventually(lambda: any(place.glob("*/build-*")))
    await eventually(lambda: any(map(_installs, tree(process.process.pid))))
    below = tree(process.process.pid) - {process.process.pid}
    process.process.kill()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await process.end(signal.SIGKILL)
    await eventually(lambda: not any(map(running, below)))
    assert not any(place.glob("*/current"))
    after = HandsProcess(settings.data_dir)
    await after.start()
    assert not any(place.glob("*/build-*"))
    await after.end(signal.SIGTERM)


async def test_killed_service_leaves_no_image_half_and_no_container_that_installs(
    settings: HandsSettings, docker_engine: Engine
) -> None:
    image = docker_engine.add_to_image(IMAGE, _slow_apt(), "test/slow-apt")
    environment = {
        "DROVER_VAULT_PROXY_ADDRESS": NOBODY,
        "DROVER_EGRESS_ADDRESS": NOBODY,
        "DROVER_HANDS_SPARE_SANDBOXES": "0",
        "DROVER_SANDBOX": "docker",
        "DOCKER_HOST": docker_engine.host,
    }
    listing = ("ps", "--all", "--quiet", "--no-trunc", "--filter", f"ancestor={image}")
    backend = Sandboxes("docker", docker_engine.host).backend(settings.data_dir / "hands")
    label = f"label={INSTALLATION}={backend._installation}"
    process = HandsProcess(settings.data_dir, **environment)
    await process.start()
    request = call("c1", command="true")
    request.environment.cloud.image = image
    request.environment.cloud.packages.apt.append("jq")
    asked = asyncio.ensure_future(_result(process.client, request))
    await eventually(lambda: bool(docker_engine.docker(*listing)))
    (container,) = docker_engine.docker(*listing).split()
    await eventually(lambda: any(map(_is_apt, contained(container))))
    process.process.kill()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await process.end(signal.SIGKILL)
    await eventually(lambda: not contained(container))
    after = HandsProcess(settings.data_dir, **environment)
    await after.start()
    assert not docker_engine.docker(*listing)
    assert not docker_engine.docker("images", "--quiet", "--filter", label)
    await after.end(signal.SIGTERM)


def _slow_apt() -> bytes:
    """What has it write something and go on for ever, as a tar."""
    packed, script = io.BytesIO(), b"#!/bin/sh\ntouch /usr/half\nexec sleep 1000\n"
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("usr/bin/apt-get")
        entry.size, entry.mode = len(script), 0o755
        archive.addfile(entry, io.BytesIO(script))
    return packed.getvalue()


def _is_apt(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\0"
    except OSError:
        return False


async def _result(client: Any, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    result: pb.ExecuteResponse = await client.Execute(request)
    return result


def _installs(pid: int) -> bool:
    try:
        return b"pip\0install" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
