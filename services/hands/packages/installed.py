"""Which environments' packages are installed, who waits for it, and when it is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends.port import PackagesMount
from services.hands.domain import packages as domain
from services.hands.domain.address import session_of
from services.hands.domain.recipe import Recipe
from services.hands.packages.attempt import Progress, attempt, end
from services.hands.packages.builder import Builder
from services.hands.packages.layered import Layered
from services.hands.packages.system import SystemBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.event.v1.session_event_pb2 import SessionError
    from services.hands.backends.port import Volume
    from services.hands.domain.packages import Layering, Packages
    from services.hands.domain.recipe import Blueprint, Standard
    from services.hands.hand import Hand
    from services.hands.packages.builder import Terms
    from services.hands.seats import Starter
    from services.hands.workspace import Workspaces

_PRUNE_SECONDS: Final = 3600.0
_AT_ONCE: Final = 2

_log = structlog.get_logger("hands.packages")


@dataclass(slots=True, eq=False)
class _State(Progress):
    """What is known of one environment's packages."""

    looked: bool = False


class Installed:
    """The packages on one host. `tasks` owns the builds, one at a time for each environment."""

    def __init__(
        self,
        terms: Terms,
        builder: Builder,
        starter: Starter,
        standard: Standard,
        *,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        room: asyncio.Semaphore | None = None,
        layers: Layered | None = None,
    ) -> None:
        self._terms = terms
        self._shelf = terms.shelf
        self._builder = builder
        self._starter = starter
        self._standard = standard
        self._tasks = tasks
        self._clock = clock
        self._states: dict[str, _State] = {}
        self._room = room or asyncio.Semaphore(_AT_ONCE)
        self._layers = layers
        self._prune_at = 0.0
        self._closed = False

    async def layered(self, blueprint: Blueprint, session_id: str) -> tuple[Blueprint, Layering]:
        """A blueprint whose image has its packages of the system, as far as that is there.

        Waits for it, though not for ever. Raises `BackendUnavailable` and `OSError`.
        """
        _, wanted = domain.refused(blueprint.packages, blueprint.kind)
        if self._layers is None or not wanted.system:
            return blueprint, domain.UNLAYERED
        made, layering = await self._layers.on(replace(blueprint, packages=wanted), session_id)
        return replace(made, packages=blueprint.packages), layering

    async def mount(self, blueprint: Blueprint) -> tuple[PackagesMount | None, str]:
        """What a sandbox is given of them, and their key; nothing where it needs none.

        Raises `BackendUnavailable` and `OSError`.
        """
        _, wanted = domain.refused(blueprint.packages, blueprint.kind)
        if not (wanted := wanted.beside):
            return None, ""
        system = await self._starter.system(blueprint)
        key = wanted.key(blueprint.kind, blueprint.image, system)
        source = await asyncio.to_thread(self._shelf.place, key)
        return PackagesMount(source, domain.DIRECTORY, writable=False), key

    def settled(self, hand: Hand) -> bool:
        """Whether `ready` has nothing to do."""
        if not hand.packages:
            return True
        if hand.layering.key and (self._layers is None or not self._layers.settled(hand)):
            return False
        if not hand.packages_key:
            return bool(hand.layering.key)
        state = self._states.get(hand.packages_key)
        return state is not None and state.failures == ()

    def outdated(self, hand: Hand) -> bool:
        """Whether its image has less than one that is there by now."""
        return self._layers is not None and bool(hand.layering.key) and self._layers.outdated(hand)

    async def ready(self, where: str, hand: Hand, *, again: bool = False) -> None:
        """Waits until what can be installed is; not for ever, as that goes on.

        `Hand.lacking` tells of what is not, which is tried once more with `again`. Raises nothing.
        """
        if not hand.packages:
            return
        never, every = domain.refused(hand.packages, hand.backend)
        lacking: list[SessionError] = [failure.error() for failure in never]
        if self._layers is not None and hand.layering.key:
            session_id = session_of(where)
            failures = await self._layers.ready(hand, every.system, session_id, again=again)
            if hand.layering.pending:
                lacking.append(domain.still(every))
            lacking += [failure.error() for failure in failures]
            if self.outdated(hand):  # the sandbox after this one has them, and the others with it
                hand.lacking = tuple(lacking)
                return
        if (wanted := every.beside) and hand.packages_key:
            key = hand.packages_key
            state = self._states.setdefault(key, _State())
            if self._due(state, again=again) and not self._closed:
                work = self._build(key, wanted, hand, session_of(where), state)
                state.under_way = self._tasks.create_task(work, name=f"packages {key}")
            if state.under_way is not None:
                seconds = max(0.0, self._terms.wait_seconds - hand.layering.waited)
                await asyncio.wait((state.under_way,), timeout=seconds)
            if state.under_way is not None:
                lacking.append(domain.still(wanted))
            lacking += [failure.error() for failure in state.failures or ()]
        hand.lacking = tuple(lacking)

    async def tend(self, hands: Iterable[Hand]) -> None:
        """Deletes, from time to time, what no sandbox has been started with for long."""
        now = self._clock.monotonic()
        if now < self._prune_at:
            return
        self._prune_at = now + _PRUNE_SECONDS
        there = [*hands]
        used = {hand.packages_key for hand in there}
        used |= self._layers.used(there) if self._layers is not None else set()
        used |= {key for key, state in self._states.items() if state.under_way is not None}
        try:
            gone = await asyncio.to_thread(self._shelf.prune, used, self._terms.bounds.keep_seconds)
        except OSError as error:
            _log.warning("packages_not_pruned", reason=error.strerror)
            return
        for key in gone:
            self._states.pop(key, None)
            _log.info("packages_pruned", key=key)
        if self._layers is not None:
            await self._layers.pruned(gone)

    async def close(self) -> None:
        """Ends the builds that are under way, with their sandboxes."""
        self._closed = True
        await end(self._states.values())
        if self._layers is not None:
            await self._layers.close()

    def _due(self, state: _State, *, again: bool) -> bool:
        if state.under_way is not None or state.failures == ():
            return False
        return not state.looked or (again and self._clock.monotonic() >= state.again_at)

    async def _build(
        self, key: str, wanted: Packages, hand: Hand, session_id: str, state: _State
    ) -> None:
        about = {"key": key, "session_id": session_id}
        launch = _Launch(self._starter, self._standard.blueprint(Recipe(hand.backend, hand.image)))
        with attempt(state, wanted, self._clock, self._terms.again_seconds, **about):
            first, state.looked = not state.looked, True
            state.there = await asyncio.to_thread(self._shelf.failures, key)
            if first and state.there is not None:
                state.failures = state.there
                if not state.there:
                    return
            async with self._room:
                _log.info("packages_begin", managers=[one for one, _ in wanted.lists], **about)
                state.failures = await self._builder.build(key, wanted, session_id, launch)


def installed(
    terms: Terms,
    workspaces: Workspaces,
    starter: Starter,
    standard: Standard,
    *,
    tasks: asyncio.TaskGroup,
    clock: Clock,
    ids: IdSource,
) -> Installed:
    """The packages beside the system, and those of it."""
    room = asyncio.Semaphore(_AT_ONCE)
    system = SystemBuilder(terms, clock=clock)
    layers = Layered(terms, system, starter, standard, tasks=tasks, clock=clock, room=room)
    builder = Builder(terms, workspaces, clock=clock, ids=ids)
    return Installed(
        terms, builder, starter, standard, tasks=tasks, clock=clock, room=room, layers=layers
    )


class _Launch:
    """Starts the sandbox that installs."""

    def __init__(self, starter: Starter, blueprint: Blueprint) -> None:
        self._starter = starter
        self._blueprint = blueprint

    async def __call__(self, volume: Volume, session_id: str, installs: Path) -> Hand:
        mount = PackagesMount(installs, domain.CURRENT, writable=True)
        return await self._starter.launch(volume, self._blueprint, session_id, installs=mount)
