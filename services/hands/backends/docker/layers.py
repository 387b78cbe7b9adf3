"""Images with packages of the system, which the engine keeps for this installation.

Each has a name of its key's, and labels; a name is moved in one step, so that none is ever half.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends.docker import disk
from services.hands.backends.docker.container import HAND, INSTALLATION
from services.hands.backends.docker.engine import EngineRefused
from services.hands.backends.port import BackendUnavailable, Layer

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from services.hands.backends.docker.engine import Engine

LAYER: Final = "drover.layer"
NOTE: Final = "drover.layer.note"

_log = structlog.get_logger("hands.docker")


class DockerLayers:
    """Those of one installation. `directory` is on the disk that they are on, if that is known."""

    def __init__(self, engine: Engine, installation: str, directory: Path | None = None) -> None:
        self._engine = engine
        self._installation = installation
        self._directory = directory

    async def find(self, key: str) -> Layer | None:
        """The one that counts. Raises `BackendUnavailable`."""
        found = await self._engine.image(self._name(key))
        if found is None:
            return None
        labels = (found.get("Config") or {}).get("Labels") or {}
        return Layer(str(found["Id"]), str(labels.get(NOTE, "")))

    async def keep(self, key: str, hand_id: str, note: str) -> Layer:
        """Commits a container, which is stopped meanwhile. Raises `BackendUnavailable`."""
        # The container's own labels are the image's too, unless they are told otherwise.
        labels = {INSTALLATION: self._installation, HAND: "", LAYER: key, NOTE: note}
        repository, _, tag = self._name(key).partition(":")
        await self._engine.commit(f"drover-{hand_id}", repository, tag, labels)
        made = await self.find(key)
        if made is None:
            raise BackendUnavailable("the container engine has not kept what was installed")
        return made

    async def size(self, hand_id: str) -> int:
        """Bytes that a container has written to its system. Raises `BackendUnavailable`."""
        return await self._engine.written(f"drover-{hand_id}")

    def free(self) -> int | None:
        """Bytes that are free for what is written to its system, and for images, if known."""
        return disk.free(self._directory)

    async def prune(self, keys: Collection[str]) -> None:
        """Removes the others, where no container has them. Raises `BackendUnavailable`."""
        label = f"{INSTALLATION}={self._installation}"
        for image_id, labels, names in await self._engine.images(label):
            key = labels.get(LAYER)
            if key is None or (key in keys and self._name(key) in names):
                continue
            if any(not name.startswith((self._name(""), "<none>")) for name in names):
                continue  # somebody's own, made of one of these: it has their labels
            with suppress(EngineRefused):  # a sandbox has it still
                await self._engine.remove_image(image_id)
                _log.info("image_pruned", key=key, image=image_id)

    def _name(self, key: str) -> str:
        return f"drover-packages-{self._installation}:{key}"
