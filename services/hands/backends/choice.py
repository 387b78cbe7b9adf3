"""Several backends as one: each sandbox is started by the one that is asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from services.hands.backends.port import Backend, Layers, Sandbox, SandboxSpec


class Choice:
    """The backends of an installation, by name; `default` is for who names none.

    Those beside the default are made when they are first asked for, and from then on when the
    service starts, which ends what they left: `directory` keeps a mark for each.
    """

    def __init__(
        self, directory: Path, makers: Mapping[str, Callable[[], Backend]], default: str
    ) -> None:
        self.name = default
        self._marks = directory.absolute() / "backends"
        self._makers = makers
        self._backends: dict[str, Backend] = {}
        self._starting = {name: asyncio.Lock() for name in makers}

    async def start(self) -> None:
        """Starts the default, and what was used before."""
        for name in self._makers:
            if name == self.name or (self._marks / name).exists():
                await self._started(name)

    async def launch(self, spec: SandboxSpec) -> Sandbox:
        """Starts a sandbox. Raises `BackendUnavailable`, also for a kind that there is not."""
        return await (await self._of(spec.kind)).launch(spec)

    async def system(self, kind: str, image: str) -> str:
        """What the system in such a sandbox is. Raises as `launch`."""
        return await (await self._of(kind)).system(kind, image)

    async def layers(self, kind: str) -> Layers | None:
        """Where its images are kept. Raises as `launch`."""
        return await (await self._of(kind)).layers(kind)

    async def close(self) -> None:
        """Lets go of all of them."""
        for backend in self._backends.values():
            await backend.close()

    async def _of(self, kind: str) -> Backend:
        kind = kind or self.name
        if kind not in self._makers:
            known = ", ".join(self._makers)
            raise BackendUnavailable(f"there are no sandboxes of kind {kind}, only {known}")
        return await self._started(kind)

    async def _started(self, name: str) -> Backend:
        async with self._starting[name]:  # of its own: one that hangs holds up no other
            if name not in self._backends:
                self._marks.mkdir(parents=True, exist_ok=True)
                (self._marks / name).touch()
                backend = self._makers[name]()
                await backend.start()
                self._backends[name] = backend
            return self._backends[name]
