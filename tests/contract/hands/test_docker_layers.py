"""Images that the engine makes of containers, when who has it make one goes away."""

from __future__ import annotations

import asyncio

from services.hands.backends.docker.engine import Engine as Calls
from services.hands.backends.docker.layers import DockerLayers
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.hands_waiting import eventually

WRITES = (
    "head -c 192M /dev/urandom >/usr/big; sha256sum /usr/big >/usr/sum; echo written; sleep 1000"
)
NAME = "drover-hand_layers"


async def test_image_is_whole_though_its_container_is_removed_while_it_is_made(
    docker_engine: Engine,
) -> None:
    docker_engine.docker(
        *("run", "--detach", "--name", NAME, "--network", "none"), IMAGE, "bash", "-c", WRITES
    )
    calls = Calls(docker_engine.host, threads=2, seconds=20.0)
    layers = DockerLayers(calls, "layers")
    try:
        await eventually(lambda: docker_engine.docker("logs", NAME), 60)
        keeping = asyncio.create_task(layers.keep("key", "hand_layers", "[]"))
        await eventually(lambda: docker_engine.inspect(NAME)["State"]["Paused"])
        keeping.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([keeping])
        assert keeping.cancelled()
        await calls.remove(NAME)
        listing = ("images", "--quiet", "drover-packages-layers:key")
        await eventually(lambda: docker_engine.docker(*listing), 60)
        made = await layers.find("key")
        assert made is not None
        check = ("sha256sum", "--check", "/usr/sum")
        shown = docker_engine.docker("run", "--rm", "--network", "none", made.image, *check)
        assert shown.strip() == "/usr/big: OK"
        await layers.prune(())
        assert await layers.find("key") is None
    finally:
        await calls.remove(NAME)
        await calls.close()
