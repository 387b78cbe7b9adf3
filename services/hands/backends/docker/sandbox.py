"""A running container."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from services.hands.backends.docker import stream
from services.hands.backends.port import BackendUnavailable
from services.hands.backends.process import Handle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.hands.backends.docker.engine import Engine, Started

    class _Clean(Protocol):
        """Called once the sandbox has ended."""

        def __call__(self, *, removed: bool) -> None: ...


_PATIENCE: Final = 10.0
_PAUSE: Final = 0.25
_STOP_SECONDS: Final = 2.0
_KILL_SECONDS: Final = 5.0

_log = structlog.get_logger("hands.docker")


class DockerSandbox:
    """A container, the stream to its agent, and a hold on its first process."""

    advice = ""

    def __init__(
        self,
        engine: Engine,
        started: Started,
        resource_limits: Mapping[str, int],
        clean: _Clean,
        *,
        has_way_out: bool,
    ) -> None:
        self.resource_limits = resource_limits
        self.has_way_out = has_way_out
        self._engine = engine
        self._id = started.container_id
        self._clean = clean
        self._began = time.time()
        self._handle = _first_process(started)
        self._cleaned: str | None = None
        self._cleaning = asyncio.Lock()

    async def open(self, started: Started) -> None:
        """Takes charge of the stream."""
        self.reader, self.writer, self._stream = await stream.opened(started.stream)

    async def confine(self) -> None:
        """Nothing: a container is under its limits from the start."""

    async def kill(self) -> None:
        """Ends every process and removes the container."""
        await self._end()

    async def ended(self) -> str:
        """Waits until no process is left; why it ended, or empty."""
        await self._stream.ended.wait()
        return await self._end()

    async def _end(self) -> str:
        async with self._cleaning:
            if self._cleaned is None:
                # One that was cut off goes on: it is ended now, not waited for.
                why = await self._why() if self._stream.let_go else ""
                # Nobody reads any more, and an engine waits for who does not.
                self.writer.transport.abort()
                gone = await self._removed()
                self._cleaned = why or ("" if gone else "its container engine is away")
                self._clean(removed=gone)
                if self._handle is not None:
                    self._handle.close()
                self.writer.close()
                with suppress(OSError):  # it was cut off
                    await self.writer.wait_closed()
        return self._cleaned

    async def _why(self) -> str:
        """Why the container ended by itself, if the engine knows."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._engine.stopped(self._id)
            inspected = await self._engine.inspect(self._id)
            if inspected is None:
                return "its container was removed"
            if inspected["State"].get("OOMKilled") or await self._engine.ran_out_of_memory(
                self._id, self._began
            ):
                return "it used more memory than it may"
            return str(inspected["State"].get("Error") or "")
        except TimeoutError:
            return "the container engine let go of it"
        except BackendUnavailable as error:
            return str(error)

    async def _removed(self) -> bool:
        """Removes the container; where the engine is away, kills it all the same.

        False when it is still to be removed: the next start of a sandbox, or of the service, does.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await self._engine.remove(self._id)
            except BackendUnavailable as error:
                if await self._killed():
                    _log.warning("container_left", container=self._id, reason=str(error))
                    return False
                if time.monotonic() >= deadline:
                    _log.exception("container_not_killed", container=self._id)
                    return False
                await asyncio.sleep(_PAUSE)
            else:
                return True

    async def _killed(self) -> bool:
        """Kills the first process without the engine, and all with it. False if it cannot be."""
        if self._handle is None:
            return False
        try:
            self._handle.kill()
            async with asyncio.timeout(_KILL_SECONDS):
                await self._handle.ended()
        except (PermissionError, TimeoutError):
            return False
        return True


def _first_process(started: Started) -> Handle | None:
    """A hold on the container's first process, if it can be seen from here.

    The engine's number of it may be another process's here: the control group names the container.
    """
    pid = int(started.inspected["State"].get("Pid") or 0)
    handle = Handle.open(pid) if pid > 0 else None
    if handle is None:
        return None
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        groups = ""
    if started.container_id in groups:
        return handle
    handle.close()
    return None
