"""Sandboxes as containers of an engine on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from services.hands.backends import agent_files, lock, seccomp, user_files
from services.hands.backends.bubblewrap import PYTHONS
from services.hands.backends.docker import container, disk, fitness
from services.hands.backends.docker.engine import Engine, EngineAway, EngineRefused
from services.hands.backends.docker.layers import DockerLayers
from services.hands.backends.docker.sandbox import DockerSandbox
from services.hands.backends.port import BackendUnavailable, ImageGone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.hands.backends.docker.engine import Started
    from services.hands.backends.docker.settings import EngineSettings
    from services.hands.backends.port import SandboxSpec

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_PATIENCE: Final = 10.0
"""Seconds that a start waits for an engine, or the proxy before it, that is started again."""

_log = structlog.get_logger("hands.docker")


class DockerBackend:
    """Starts containers. `directory` is the hands' own, which the engine must see under its name.

    Where it is on a volume of the engine's, the engine is asked for that. The containers are
    labelled with the installation, which is that directory's.
    """

    name = "docker"

    def __init__(self, directory: Path, settings: EngineSettings) -> None:
        self._directory = directory.absolute() / "docker"
        self._settings = settings
        self._engine = Engine(settings.host, threads=settings.threads, seconds=settings.seconds)
        # Hands in containers have the same directories, each in another volume.
        place = f"{settings.volume}:" if settings.volume else ""
        named = os.fsencode(f"{place}{self._directory}")
        self._installation = hashlib.sha256(named).hexdigest()[:12]
        self._machine: container.Machine | None = None
        self._met = False
        self._preparing = asyncio.Lock()
        self._live: set[str] = set()
        self._lock = -1

    async def start(self) -> None:
        """Removes what a dead process left, and prepares files."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = await lock.hold(self._directory / "lock")
        await asyncio.to_thread(self._lay_out)
        try:
            await self._ready()
        except BackendUnavailable as error:
            _log.warning("containers_unavailable", reason=str(error))

    async def launch(self, spec: SandboxSpec) -> DockerSandbox:
        """Starts a sandbox. Raises `BackendUnavailable`.

        An engine that has answered before and is away is waited for.
        """
        try:
            return await self._launch(spec)
        except EngineAway:
            self._machine = None  # the engine is another one when it is back, and is asked anew
            if not self._met or not await self._engine.returns(_PATIENCE):
                raise
            return await self._launch(spec)

    async def _launch(self, spec: SandboxSpec) -> DockerSandbox:
        machine = await self._ready()
        if not machine.sockets:
            spec = replace(spec, way_out=None)
        image = spec.image or self._settings.image
        fitness.check_image(image, await self._engine.image(image))
        user = os.getuid() if spec.volume.owner is None else spec.volume.owner
        if spec.installs_system:
            user = 0
        config = container.configuration(
            spec,
            user=user,
            image=image,
            runtime=self._settings.runtime,
            installation=self._installation,
            files=self._files(spec.hand_id, user),
            machine=machine,
        )
        self._live.add(spec.hand_id)
        try:
            started = await self._run(f"drover-{spec.hand_id}", config, image)
            limits = dict(spec.limits.resource_limits(grouped=True))
            if spec.volume.owner is None or not machine.own_kernel:
                # It would count all processes of that user on this host, another installation's or
                # a person's too. The control group counts the container's alone.
                limits.pop("NPROC")
            sandbox = DockerSandbox(
                self._engine,
                started,
                limits,
                partial(self._forget, spec.hand_id),
                has_way_out=spec.way_out is not None,
            )
            await sandbox.open(started)
        except BaseException:
            self._forget(spec.hand_id, removed=True)
            raise
        weaker = [*started.warnings, *container.weaker(config, started.inspected)]
        if weaker:
            await sandbox.kill()
            raise BackendUnavailable(
                f"the container engine gives less protection than it was told: {'; '.join(weaker)}"
            )
        return sandbox

    async def system(self, kind: str, image: str) -> str:  # noqa: ARG002  # of one kind only
        """The image's own digest: its name may be another's tomorrow. Raises as `launch`."""
        await self._ready()
        image = image or self._settings.image
        found = await self._engine.image(image)
        fitness.check_image(image, found)
        return str((found or {}).get("Id", image))

    async def layers(self, kind: str) -> DockerLayers:  # noqa: ARG002  # of one kind only
        """Where its images with packages are. Raises `BackendUnavailable`."""
        machine = await self._ready()
        if machine.no_layers:
            raise BackendUnavailable(machine.no_layers)
        return DockerLayers(self._engine, self._installation, machine.disk)

    async def close(self) -> None:
        """Ends the threads."""
        await self._engine.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _ready(self) -> container.Machine:
        """What the engine's machine has, found out once. Raises `BackendUnavailable`."""
        async with self._preparing:
            if self._machine is None:
                fitness.check_host(self._settings.host)
                info, version = await self._engine.about()
                machine = fitness.check(info, version, self._settings)
                places = await self._places()
                machine = replace(machine, places=places, disk=disk.of_engine(info, places))
                await self._sweep()
                self._machine, self._met = machine, True
            return self._machine

    async def _places(self) -> container.Places:
        """How the engine calls the hands' files. Raises `BackendUnavailable`."""
        if not (name := self._settings.volume):
            return container.Places()
        there = await self._engine.volume(name)
        if not there:
            raise BackendUnavailable(
                f"the container engine has no volume {name}: name the one that DROVER_DATA_DIR is "
                "mounted from in DROVER_SANDBOX_DATA_VOLUME"
            )
        return container.Places(self._settings.data, Path(there))

    async def _sweep(self) -> None:
        """Removes the installation's containers that no sandbox of this process is in."""
        label = f"{container.INSTALLATION}={self._installation}"
        for container_id, labels in await self._engine.labelled(label):
            # Without a hand's id it is somebody's, run from an image that was made of packages.
            if labels.get(container.HAND) not in {"", *self._live}:
                _log.warning("leftover_container_removed", container=container_id)
                await self._engine.remove(container_id)

    async def _run(self, name: str, config: Mapping[str, Any], image: str) -> Started:
        try:
            return await self._engine.run(name, config)
        except EngineRefused as refusal:
            if refusal.status == _BAD_REQUEST and "executable file not found" in str(refusal):
                raise BackendUnavailable(
                    f"the image {image} has no python3: a sandbox's image needs Python 3.9 or "
                    "newer and bash"
                ) from refusal
            if refusal.status == _NOT_FOUND and "No such image" in str(refusal):
                raise ImageGone(str(refusal)) from refusal
            raise

    def _files(self, hand_id: str, user: int) -> container.Files:
        users = user_files.write(self._directory / "users" / hand_id, user)
        return container.Files(self._directory / "agent", users)

    def _forget(self, hand_id: str, *, removed: bool) -> None:
        self._live.discard(hand_id)
        if not removed:
            self._machine = None  # the engine is another one when it is back: the next start asks
        shutil.rmtree(self._directory / "users" / hand_id, ignore_errors=True)

    def _lay_out(self) -> None:
        python = next((path for path in PYTHONS if os.access(path, os.X_OK)), "")
        shutil.rmtree(self._directory / "users", ignore_errors=True)
        agent_files.lay_out(self._directory / "agent", python, seccomp.program())
