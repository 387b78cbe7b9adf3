"""Installs packages of the system, in a sandbox of its own whose system becomes an image.

In it the installer is root, on the image as it is, and has nothing of any session's but its way
out. What comes of it counts once it is an image, which sandboxes run as any other: without root,
and read-only.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from services.hands.backends.port import BackendUnavailable, Volume
from services.hands.domain import apt
from services.hands.domain.packages import SYSTEM, Failure, end_of
from services.hands.egress import variables
from services.hands.hand import HandDied
from services.hands.packages.builder import NO_WAY_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chassis.clock import Clock
    from services.hands.backends.port import Layer, Layers
    from services.hands.domain.packages import Packages, Step
    from services.hands.hand import Hand
    from services.hands.packages.builder import Bounds, Terms

_LOOK_SECONDS: Final = 2.0
_TIDY_SECONDS: Final = 60.0
_ENVIRONMENT: Final = apt.ENVIRONMENT | variables.NETWORK

_log = structlog.get_logger("hands.packages")


class LaunchSystem(Protocol):
    """Starts a sandbox from an image whose system may be written to."""

    async def __call__(self, volume: Volume, session_id: str) -> Hand:
        """Raises `BackendUnavailable`."""
        ...


def failures_of(layer: Layer) -> tuple[Failure, ...]:
    """What could not be installed in it."""
    try:
        return tuple(Failure(*row) for row in json.loads(layer.note))
    except (ValueError, TypeError):
        return ()


class SystemBuilder:
    """Makes images with packages."""

    def __init__(self, terms: Terms, *, clock: Clock) -> None:
        self._directory = terms.shelf.directory
        self._bounds = terms.bounds
        self._clock = clock

    async def build(
        self, layers: Layers, key: str, packages: Packages, session_id: str, launch: LaunchSystem
    ) -> tuple[Layer | None, tuple[Failure, ...]]:
        """The image that counts, with as much as can be installed, and what cannot.

        It is the one from before unless less is missing now. Raises `BackendUnavailable`.
        """
        before = await layers.find(key)
        listed = tuple(one for _, names in packages.lists for one in names)
        most = len(listed) if before is None else len(failures_of(before))
        until = self._clock.monotonic() + self._bounds.seconds
        place = _Place(layers, launch, session_id, self._directory, self._bounds)
        work = _Work(place, self._clock, until)
        try:
            await work.begin()
            failures = await work.fill(listed)
            if len(failures) >= most:
                return before, failures if before is None else failures_of(before)
            hand_id = await work.tidy()
            rows = [[one.manager, one.package, end_of(one.words)] for one in failures]
            return await layers.keep(key, hand_id, json.dumps(rows)), failures
        except HandDied as death:
            raise BackendUnavailable(f"the sandbox that installs packages ended: {death}") from None
        finally:
            await work.end()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one build is done. `directory` is there, and nothing of it is seen inside."""

    layers: Layers
    launch: LaunchSystem
    session_id: str
    directory: Path
    bounds: Bounds

    async def hand(self) -> Hand:
        """A sandbox, once its way out is there. Raises `BackendUnavailable`."""
        volume = Volume(self.directory, 0 if os.geteuid() == 0 else None)
        hand = await self.launch(volume, self.session_id)
        hand.assign(self.session_id)
        if hand.access is None:
            await hand.kill("it has no way out")
            raise BackendUnavailable(NO_WAY_OUT)
        try:
            await hand.access.ready()
        except BaseException:
            await hand.kill("its way out is not there")
            raise
        return hand

    async def watch(self, hand: Hand) -> None:
        """Ends it when it takes more of the disk than it may."""
        while not hand.dead.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(BackendUnavailable):  # an engine that is away takes it along
                await self.check(hand)

    async def check(self, hand: Hand, *, copied: bool = False) -> None:
        """Looks once, before it is `copied` into an image if so. Raises `BackendUnavailable`."""
        size = await self.layers.size(hand.id)
        free = self.layers.free()
        needed = self.bounds.free_bytes + (size if copied else 0)
        if size > self.bounds.disk_bytes:
            await hand.kill("it takes more of the disk than DROVER_HANDS_PACKAGES_MIB")
        elif free is not None and free < needed:
            await hand.kill("the disk is almost full")


class _Work:
    """One build: its sandbox, and another where a package has left that one half installed."""

    def __init__(self, place: _Place, clock: Clock, until: float) -> None:
        self._place = place
        self._clock = clock
        self._until = until
        self._late = f"{place.bounds.seconds:g} s are over (DROVER_HANDS_PACKAGES_SECONDS)"
        self._hand: Hand | None = None
        self._unread: str | None = None
        """Why the indexes could not be read there; nothing before they are asked for."""
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Starts a sandbox. Raises `BackendUnavailable`."""
        self._hand, self._unread = await self._place.hand(), None
        watch = self._place.watch(self._hand)
        self._watch = asyncio.create_task(watch, name=f"disk {self._hand.id}")

    async def end(self) -> None:
        """Ends it, with everything in it."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        if self._hand is not None:
            await self._hand.kill("it has installed what it was made for")
        self._watch = self._hand = None

    async def fill(self, listed: Sequence[str]) -> tuple[Failure, ...]:
        """Installs all at once, or else one by one those that can be. Raises `HandDied`."""
        if not (words := await self._install(listed)):
            return ()
        all_alike = {self._unread, self._late}
        if len(listed) == 1 or words in all_alike or words.startswith("the sandbox has no "):
            return tuple(Failure(SYSTEM, one, words) for one in listed)
        failures: list[Failure] = []
        there: list[str] = []
        for one in listed:
            await self._mend(there)
            if alone := await self._install((one,)):
                failures.append(Failure(SYSTEM, one, alone))
            else:
                there.append(one)
        if there:
            await self._mend(there)
        return tuple(failures)

    async def tidy(self) -> str:
        """Takes away what is no part of it; whose system it is in. Raises `HandDied`."""
        self._until += _TIDY_SECONDS  # of its own: what is there is not to be lost
        for step in apt.TIDY:
            if words := await self._run(step):
                raise BackendUnavailable(words)
        if self._hand is None:
            raise BackendUnavailable("the sandbox that installs packages has ended")
        await self._place.check(self._hand, copied=True)
        if self._hand.dead.is_set():  # what is kept is within its bounds
            await self._run(apt.AUDIT)
        return self._hand.id

    async def _mend(self, there: Sequence[str]) -> None:
        """Begins anew with what is there already, if anything is half installed."""
        if words := await self._run(apt.AUDIT):
            if words == self._late:  # a new one could not be used either
                raise BackendUnavailable(words)
            await self.end()
            await self.begin()
            if there and (words := await self._install(there)):
                raise BackendUnavailable(words)

    async def _install(self, packages: Sequence[str]) -> str:
        """Why these cannot be installed; empty if they are."""
        began = self._clock.monotonic()
        if self._unread is None:
            self._unread = await self._run(apt.refresh(variables.NETWORK))
        if words := self._unread or await self._run(apt.install(packages, variables.NETWORK)):
            return words
        seconds = round(self._clock.monotonic() - began, 3)
        _log.info("packages_installed", manager=SYSTEM, packages=[*packages], seconds=seconds)
        return ""

    async def _run(self, step: Step) -> str:
        """Why a program has failed; empty if it has not."""
        left = self._until - self._clock.monotonic()
        if left <= 0 or self._hand is None:
            return self._late
        reply = await self._hand.run(f"install {SYSTEM}", step.call(_ENVIRONMENT, left))
        if not reply.is_error:
            return ""
        if self._clock.monotonic() >= self._until:
            return self._late
        return "".join(block.text.text for block in reply.content).strip() or "it failed"
