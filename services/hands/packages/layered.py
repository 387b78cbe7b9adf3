"""Which images have environments' packages of the system, who waits for one, and when it is tried
again.

The directory `layer-<key>` beside those of other packages says when an image was last used, and
holds nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.packages import WITH_ROOT
from services.hands.backends.port import BackendUnavailable
from services.hands.domain.packages import Layering
from services.hands.domain.recipe import Recipe
from services.hands.packages.attempt import Progress, attempt, end
from services.hands.packages.system import failures_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from chassis.clock import Clock
    from services.hands.backends.port import Layers, Volume
    from services.hands.domain.packages import Failure, Packages
    from services.hands.domain.recipe import Blueprint, Standard
    from services.hands.hand import Hand
    from services.hands.packages.builder import Terms
    from services.hands.packages.system import SystemBuilder
    from services.hands.seats import Starter

_MARK: Final = "layer-"

_log = structlog.get_logger("hands.packages")


@dataclass(slots=True, eq=False)
class _State(Progress):
    """What is known of one image."""

    image: str = ""


class Layered:
    """The images of one machine. `tasks` owns the builds, one at a time for each key.

    Each is made in the `room` that all who install have.
    """

    def __init__(
        self,
        terms: Terms,
        builder: SystemBuilder,
        starter: Starter,
        standard: Standard,
        *,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        room: asyncio.Semaphore,
    ) -> None:
        self._terms = terms
        self._builder = builder
        self._starter = starter
        self._standard = standard
        self._tasks = tasks
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._room = room
        self._closed = False

    async def on(self, blueprint: Blueprint, session_id: str) -> tuple[Blueprint, Layering]:
        """What a sandbox is to be started from: the image with its packages, if that is there.

        Waits for it, though not for ever. Raises `BackendUnavailable` and `OSError`.
        """
        wanted = blueprint.packages.system
        base = await self._starter.system(blueprint)
        key = wanted.key(blueprint.kind, base)
        await asyncio.to_thread(self._terms.shelf.place, f"{_MARK}{key}")
        state = self._states.setdefault(key, _State())
        if state.under_way is None:
            await self._look(blueprint.kind, key, state)
        began = self._clock.monotonic()
        layering = Layering(key, base)
        await self._tried(wanted, layering, blueprint.kind, session_id, again=False)
        # Half of the time: the other packages are waited for, too.
        await self._waited(state, self._terms.wait_seconds / 2)
        layering = replace(
            layering,
            pending=state.under_way is not None,
            waited=self._clock.monotonic() - began,
        )
        return replace(blueprint, image=state.image or blueprint.image), layering

    async def ready(
        self, hand: Hand, wanted: Packages, session_id: str, *, again: bool
    ) -> tuple[Failure, ...]:
        """Waits for what a sandbox was started without; what is missing of it. Raises nothing."""
        layering = hand.layering
        state = await self._tried(wanted, layering, hand.backend, session_id, again=again)
        await self._waited(state, self._terms.wait_seconds - layering.waited)
        return state.failures or ()

    def settled(self, hand: Hand) -> bool:
        """Whether a sandbox has all that it can ever have of them."""
        state = self._states.get(hand.layering.key)
        return state is not None and not hand.layering.pending and state.failures == ()

    def outdated(self, hand: Hand) -> bool:
        """Whether a sandbox that was started now would have more."""
        state = self._states.get(hand.layering.key)
        if state is None or state.under_way is not None or state.failures is None:
            return False
        return hand.layering.pending or state.image not in {"", hand.image}

    def used(self, hands: Collection[Hand]) -> set[str]:
        """The directories of those that are not to be pruned."""
        keys = {hand.layering.key for hand in hands if hand.layering.key}
        keys |= {key for key, state in self._states.items() if state.under_way is not None}
        return {f"{_MARK}{key}" for key in keys}

    async def pruned(self, gone: Collection[str]) -> None:
        """Removes the images whose directories are gone. Raises nothing."""
        keys = {name.removeprefix(_MARK) for name in gone if name.startswith(_MARK)}
        if not keys:
            return
        for key in keys:
            self._states.pop(key, None)
        await self._prune(WITH_ROOT)

    async def close(self) -> None:
        """Ends the builds that are under way, with their sandboxes."""
        self._closed = True
        await end(self._states.values())

    async def _layers(self, kind: str) -> Layers:
        layers = await self._starter.layers(kind)
        if layers is None:
            raise BackendUnavailable(f"{kind} sandboxes have no images of their own making")
        return layers

    async def _prune(self, kind: str) -> None:
        """Removes the images that have no directory. Raises nothing: those that count are there."""
        try:
            there = await asyncio.to_thread(self._terms.shelf.keys)
            marks = {name.removeprefix(_MARK) for name in there if name.startswith(_MARK)}
            await (await self._layers(kind)).prune(marks)
        except (BackendUnavailable, OSError) as error:
            _log.warning("images_not_pruned", reason=str(error))

    async def _look(self, kind: str, key: str, state: _State) -> None:
        """Finds what an earlier process has made, and what somebody has removed since."""
        try:
            layer = await (await self._layers(kind)).find(key)
        except BackendUnavailable:
            return  # the build says so, or the start
        if layer is not None:
            state.image, state.failures = layer.image, failures_of(layer)
        elif state.image:
            state.image, state.failures = "", None

    async def _tried(
        self, wanted: Packages, layering: Layering, kind: str, session_id: str, *, again: bool
    ) -> _State:
        """Begins a build if one is due."""
        state = self._states.setdefault(layering.key, _State())
        if state.under_way is not None or state.failures == () or self._closed:
            return state
        if state.failures is None or (again and self._clock.monotonic() >= state.again_at):
            work = self._build(wanted, layering, kind, session_id, state)
            state.under_way = self._tasks.create_task(work, name=f"layer {layering.key}")
        return state

    async def _waited(self, state: _State, seconds: float) -> None:
        if state.under_way is not None:
            await asyncio.wait((state.under_way,), timeout=max(0.0, seconds))

    async def _build(
        self, wanted: Packages, layering: Layering, kind: str, session_id: str, state: _State
    ) -> None:
        key = layering.key
        about = {"key": key, "session_id": session_id}
        blueprint = self._standard.blueprint(Recipe(kind, layering.base))
        state.there = state.failures if state.image else None
        with attempt(state, wanted, self._clock, self._terms.again_seconds, **about):
            async with self._room:
                managers = [manager for manager, _ in wanted.lists]
                _log.info("packages_begin", managers=managers, **about)
                layers = await self._layers(kind)
                launch = _Launch(self._starter, blueprint)
                layer, failures = await self._builder.build(layers, key, wanted, session_id, launch)
                state.image, state.failures = layer.image if layer else "", failures
                await self._prune(kind)


class _Launch:
    """Starts the sandbox that installs."""

    def __init__(self, starter: Starter, blueprint: Blueprint) -> None:
        self._starter = starter
        self._blueprint = blueprint

    async def __call__(self, volume: Volume, session_id: str) -> Hand:
        return await self._starter.launch(volume, self._blueprint, session_id, installs_system=True)
