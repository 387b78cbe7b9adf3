"""Installs packages, in a sandbox of its own that ends with it.

It is as any other of its kind, but for one directory that it may write to. Its way out is the
session's whose first call needs the packages: what that may reach, it may, and the audit trail
says so.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from services.hands.backends import inside
from services.hands.backends.port import BackendUnavailable
from services.hands.domain import packages as domain
from services.hands.domain.packages import Failure, Packages
from services.hands.egress import variables
from services.hands.hand import HandDied
from services.hands.measure import size_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Volume
    from services.hands.hand import Hand
    from services.hands.packages.shelf import Shelf
    from services.hands.workspace import Workspaces

_LOOK_SECONDS: Final = 1.0
NO_WAY_OUT: Final = (
    "sandboxes have no network here: set DROVER_EGRESS_ADDRESS (docs/sandboxes.md, Network)"
)
_ENVIRONMENT: Final = (
    inside.ENVIRONMENT
    | variables.NETWORK
    | {"TMPDIR": "/workspace/tmp"}  # on the disk: what is unpacked may not fit into memory
)

_log = structlog.get_logger("hands.packages")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What installing an environment's packages may take, and for how long they are kept unused.

    `disk_bytes` is of what is installed and what that needs meanwhile; `free_bytes` must stay free.
    """

    seconds: float = 1800.0
    disk_bytes: int = 10 * 1024**3
    free_bytes: int = 0
    keep_seconds: float = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Where packages are installed, from which `indexes` of the operator's own, by manager.

    `wait_seconds`: how long the first calls wait for what goes on behind them, less than a brain
    gives them. `again_seconds`: how soon what has failed may be tried again.
    """

    shelf: Shelf
    indexes: Mapping[str, str] = field(default_factory=dict)
    bounds: Bounds = Bounds()
    wait_seconds: float = 45.0
    again_seconds: float = 30.0


class Launch(Protocol):
    """Starts a sandbox of some kind that may write to a directory for packages."""

    async def __call__(self, volume: Volume, session_id: str, installs: Path) -> Hand:
        """Raises `BackendUnavailable`."""
        ...


class Builder:
    """Installs lists of packages."""

    def __init__(
        self, terms: Terms, workspaces: Workspaces, *, clock: Clock, ids: IdSource
    ) -> None:
        self._shelf = terms.shelf
        self._workspaces = workspaces
        self._indexes = terms.indexes
        self._bounds = terms.bounds
        self._late = f"{terms.bounds.seconds:g} s are over (DROVER_HANDS_PACKAGES_SECONDS)"
        self._clock = clock
        self._ids = ids

    async def build(
        self, key: str, packages: Packages, session_id: str, launch: Launch
    ) -> tuple[Failure, ...]:
        """Installs as much as can be; what cannot. Nothing else is ever left half.

        Sandboxes find it unless there was as much before. Raises `BackendUnavailable` and
        `OSError`.
        """
        before = await asyncio.to_thread(self._shelf.failures, key)
        volume = await self._workspaces.make_spare(self._ids("spare"))
        try:
            built = await asyncio.to_thread(self._shelf.begin, key, self._ids("pkgs"), volume.owner)
            published = False
            try:
                failures = await self._fill(volume, built, packages, session_id, launch)
                names = sum(len(listed) for _, listed in packages.lists)
                if len(failures) < (names if before is None else len(before)):
                    await asyncio.to_thread(self._shelf.publish, key, built, failures)
                    published = True
            finally:
                if not published:
                    await asyncio.to_thread(self._shelf.discard, built)
        finally:
            await self._workspaces.remove(volume)
        return failures if published or before is None else before

    async def _fill(
        self, volume: Volume, built: Path, packages: Packages, session_id: str, launch: Launch
    ) -> tuple[Failure, ...]:
        hand = await launch(volume, session_id, built)
        try:
            hand.assign(session_id)
            if hand.access is None:
                raise BackendUnavailable(NO_WAY_OUT)
            await hand.access.ready()
            until = self._clock.monotonic() + self._bounds.seconds
            failures: list[Failure] = []
            async with self._bounded(hand, (built, volume.root)):
                for manager, listed in packages.lists:
                    failures += await self._install(hand, manager, listed, until)
                # A moment of its own: what was installed until then is not to be lost.
                opened = await hand.run("open up", domain.OPEN_UP.call(_ENVIRONMENT, 60.0))
            if opened.is_error:
                text = "".join(block.text.text for block in opened.content)
                raise BackendUnavailable(f"what was installed cannot be opened to all: {text}")
        except HandDied as death:
            raise BackendUnavailable(f"the sandbox that installs packages ended: {death}") from None
        finally:
            await hand.kill("it has installed what it was made for")
        return tuple(failures)

    async def _install(
        self, hand: Hand, manager: str, packages: Sequence[str], until: float
    ) -> Sequence[Failure]:
        """What of one manager's list cannot be installed. Raises `HandDied`."""
        words = await self._run(hand, manager, packages, until)
        if not words:
            return ()
        if len(packages) == 1 or words.startswith("the sandbox has no "):
            return [Failure(manager, one, words) for one in packages]
        failures = [  # which of them is it?
            Failure(manager, one, alone)
            for one in packages
            if (alone := await self._run(hand, manager, (one,), until))
        ]
        return failures or [Failure(manager, f"all of {', '.join(packages)} together", words)]

    async def _run(self, hand: Hand, manager: str, packages: Sequence[str], until: float) -> str:
        """Why these cannot be installed; empty if they are. Raises `HandDied`."""
        began = self._clock.monotonic()
        for step in domain.steps(manager, packages, self._indexes.get(manager, "")):
            left = until - self._clock.monotonic()
            if left <= 0:
                return self._late
            reply = await hand.run(f"install {manager}", step.call(_ENVIRONMENT, left))
            if reply.is_error and self._clock.monotonic() >= until:
                return self._late
            if reply.is_error:
                words = "".join(block.text.text for block in reply.content).strip()
                return words or f"{manager} failed"
        seconds = round(self._clock.monotonic() - began, 3)
        _log.info("packages_installed", manager=manager, packages=[*packages], seconds=seconds)
        return ""

    @asynccontextmanager
    async def _bounded(self, hand: Hand, roots: Sequence[Path]) -> AsyncIterator[None]:
        """Ends the sandbox that takes more of the disk than it may, while the body runs."""
        watch = asyncio.create_task(self._watch(hand, roots), name=f"disk {hand.id}")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, hand: Hand, roots: Sequence[Path]) -> None:
        while not hand.dead.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            sizes = [await asyncio.to_thread(size_of, root) for root in roots]
            system = os.statvfs(roots[0])
            if sum(sizes) > self._bounds.disk_bytes:
                await hand.kill("it takes more of the disk than DROVER_HANDS_PACKAGES_MIB")
            elif system.f_bavail * system.f_frsize < self._bounds.free_bytes:
                await hand.kill("the disk is almost full")
