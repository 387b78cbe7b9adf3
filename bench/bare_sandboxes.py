"""What a sandbox is measured against: bubblewrap or a container with nothing of Drover's in it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import docker

from services.hands.backends import agent_files, bubblewrap, etc_files
from services.hands.backends.launcher import Launcher
from services.hands.backends.port import SandboxSpec, Volume
from services.hands.backends.process import Handle
from services.hands.domain.limits import Limits
from services.hands.workspace import Workspaces

NOTHING: Final = ("/bin/bash", "-c", "true")
"""The command of every measurement: a shell that does nothing."""


class Bubblewrap:
    """bubblewrap, told what Drover tells it, as a user as Drover's: one sandbox, one command.

    The user is changed by the program that is there for it, where Drover has a quicker way.
    """

    def __init__(self, directory: Path, launcher: Launcher, volume: Volume) -> None:
        self._launcher = launcher
        self._volume = volume
        self._program = str(bubblewrap.find_program())
        spec = SandboxSpec("hand_1", volume, Limits())
        agent, etc = directory / "agent", directory / "etc"
        told = bubblewrap.arguments(spec, agent=agent, etc=etc, at=launcher.at)
        self._told = "\0".join(told).encode() + b"\0"
        self._as_user = () if volume.owner is None else _as_user(str(volume.owner))

    async def run(self) -> float:
        """Milliseconds until a sandbox has been made, has run the command and has ended."""
        begin = time.perf_counter()
        program = [*self._as_user, self._program, "--args", 0, "--", *NOTHING]
        started = await self._launcher.start(program, [self._told], user=None)
        started.stream.close()
        handle = Handle.open(started.process.pid)
        if handle is not None:
            await handle.ended()
            handle.close()
        status = started.process.wait()
        taken = (time.perf_counter() - begin) * 1000
        if status:
            msg = f"bubblewrap ended with {status}"
            raise RuntimeError(msg)
        return taken


@asynccontextmanager
async def bare_bubblewrap(directory: Path) -> AsyncIterator[Bubblewrap]:
    """Lays out below `directory` what sandboxes are made of."""
    privileged = os.geteuid() == 0
    await asyncio.to_thread(directory.chmod, 0o711)
    workspaces = Workspaces(directory, privileged=privileged)
    await workspaces.start()
    agent_files.lay_out(directory / "agent", bubblewrap.find_python())
    etc_files.lay_out(directory / "etc")
    launcher = Launcher(directory, privileged=privileged)
    await launcher.open()
    try:
        yield Bubblewrap(directory, launcher, await workspaces.make("sesn_1"))
    finally:
        await launcher.close()


def _as_user(user: str) -> tuple[str, ...]:
    return (
        *("/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups"),
        *("--inh-caps", "-all", "--pdeathsig", "KILL"),
    )


def spawn() -> float:
    """Milliseconds until a spawned process has run the command and has ended."""
    begin = time.perf_counter()
    pid = os.posix_spawn(NOTHING[0], NOTHING, {})
    os.waitpid(pid, 0)
    return (time.perf_counter() - begin) * 1000


class Containers:
    """An engine asked for containers like one that runs, and for a command in one of them."""

    def __init__(self, host: str) -> None:
        self._api = docker.APIClient(base_url=host, version="auto")
        self._like: dict[str, Any] = {}

    def copy(self) -> str:
        """Takes the newest container as the pattern; answers its id."""
        newest = self._api.containers(latest=True)[0]["Id"]
        shown = self._api.inspect_container(newest)
        self._like = {**shown["Config"], "HostConfig": shown["HostConfig"]}
        return str(newest)

    def create_and_start(self) -> float:
        """Milliseconds until such a container has been created and started; it is removed."""
        begin = time.perf_counter()
        made = self._api.create_container_from_config(self._like)["Id"]
        self._api.start(made)
        taken = (time.perf_counter() - begin) * 1000
        self._api.remove_container(made, force=True)
        return taken

    def run_in(self, container: str) -> float:
        """Milliseconds until the engine has run the command in a container."""
        begin = time.perf_counter()
        made = self._api.exec_create(container, list(NOTHING))["Id"]
        self._api.exec_start(made)
        self._api.exec_inspect(made)
        return (time.perf_counter() - begin) * 1000

    def close(self) -> None:
        """Closes the connections."""
        self._api.close()


async def in_turn(count: int, *measures: Any) -> list[list[float]]:
    """Takes each figure `count` times, one after the other, so that a busy minute hits them all."""
    samples: list[list[float]] = [[] for _ in measures]
    for _ in range(count):
        for measure, taken in zip(measures, samples, strict=True):
            taken.append(await measure())
            await asyncio.sleep(0)
    return samples
