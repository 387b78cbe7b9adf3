"""A session's place in the pool, and what starts the hand that sits there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from services.hands.backends.port import BackendUnavailable, ImageGone, SandboxSpec
from services.hands.domain.packages import UNLAYERED
from services.hands.hand import Hand
from services.hands.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Backend, Layers, PackagesMount, Volume
    from services.hands.domain.packages import Layering
    from services.hands.domain.recipe import Blueprint
    from services.hands.egress.network import Network
    from services.hands.packages.installed import Installed


@dataclass(slots=True, eq=False)
class Seat:
    """The place of one hand: its future, and who uses it."""

    hand: asyncio.Future[Hand]
    used_at: float
    users: int = 0

    @property
    def usable(self) -> bool:
        """Whether the hand is there or on its way."""
        if not self.hand.done():
            return True
        if self.hand.cancelled():  # with the service, which stops
            return False
        return self.hand.exception() is None and not self.hand.result().dead.is_set()

    @property
    def ready(self) -> bool:
        """Whether the hand is there."""
        return self.hand.done() and self.usable

    @property
    def idle(self) -> bool:
        """Whether the hand is there and nobody uses it."""
        return self.users == 0 and self.hand.done()

    def older_than(self, started: float) -> bool:
        """Whether the hand was started before that moment."""
        return self.ready and self.hand.result().started_at <= started


@dataclass(frozen=True, slots=True)
class _Packed:
    """A blueprint with the image that has its packages of the system, and where the others are."""

    blueprint: Blueprint
    layering: Layering = UNLAYERED
    mount: PackagesMount | None = None
    key: str = ""


class Starter:
    """Starts sandboxes, so many at once as the machine has use for, and spares behind all others.

    `packages` has those of environments, where any are installed.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: asyncio.TaskGroup,
        *,
        clock: Clock,
        ids: IdSource,
        at_once: int,
        grace: float,
        network: Network | None = None,
    ) -> None:
        self.kind = backend.name
        self._network = network
        self._backend = backend
        self._tasks = tasks
        self._clock = clock
        self._ids = ids
        self._grace = grace
        self._turns = Turns(at_once)
        self.packages: Installed | None = None

    async def system(self, blueprint: Blueprint) -> str:
        """What the system in its sandboxes is. Raises `BackendUnavailable`."""
        return await self._backend.system(blueprint.kind, blueprint.image)

    async def layers(self, kind: str) -> Layers | None:
        """Where images of such sandboxes are kept. Raises `BackendUnavailable`."""
        return await self._backend.layers(kind)

    async def launch(
        self,
        volume: Volume | Callable[[], Awaitable[Volume]],
        blueprint: Blueprint,
        session_id: str = "",
        *,
        installs: PackagesMount | None = None,
        installs_system: bool = False,
    ) -> Hand:
        """A new hand over a volume, for a session if that is known already, or else a spare.

        A volume that has yet to be made is made in the hand's turn: of many that come at once the
        first are not to wait until all have one.

        It has the blueprint's packages, or `installs` those of others, in a directory or in its
        system. Raises `BackendUnavailable` and `OSError`.
        """
        gone = ""
        while True:
            packed = await self._packed(blueprint, session_id)
            image = packed.blueprint.image
            try:
                async with self._turns.turn(spare=not session_id):
                    if callable(volume):
                        volume = await volume()
                    spec = SandboxSpec(
                        self._ids("hand"),
                        volume,
                        blueprint.limits,
                        blueprint.kind,
                        image,
                        packages=installs or packed.mount,
                        installs_system=installs_system,
                        stores=blueprint.stores,
                    )
                    return await self._opened(spec, session_id, packed)
            except ImageGone:
                # One with packages may have been replaced, or removed, while this waited its turn.
                if not packed.layering.key or image == gone:
                    raise
                gone = image

    async def _packed(self, blueprint: Blueprint, session_id: str) -> _Packed:
        if not blueprint.packages:
            return _Packed(blueprint)
        if self.packages is None:
            raise BackendUnavailable("no packages are installed in these sandboxes")
        blueprint, layering = await self.packages.layered(blueprint, session_id)
        if layering.pending:
            return _Packed(blueprint, layering)
        return _Packed(blueprint, layering, *await self.packages.mount(blueprint))

    async def _opened(self, spec: SandboxSpec, session_id: str, packed: _Packed) -> Hand:
        hand = await self._made(spec, session_id)
        hand.backend, hand.image = spec.kind, spec.image
        hand.packages, hand.packages_key = packed.blueprint.packages, packed.key
        hand.layering = packed.layering
        hand.started_at = self._clock.monotonic()
        hand.workspace_bytes = spec.limits.workspace_bytes
        await hand.open(self._tasks)
        return hand

    async def _made(self, spec: SandboxSpec, session_id: str) -> Hand:
        if self._network is None:
            return Hand(spec.hand_id, await self._backend.launch(spec), grace=self._grace)
        access = await self._network.attach(spec.hand_id, spec.volume.owner)
        access.expect(session_id)
        try:
            sandbox = await self._backend.launch(replace(spec, way_out=access.way_out))
        except BaseException:
            access.close()
            raise
        if not sandbox.has_way_out:
            access.close()
            return Hand(spec.hand_id, sandbox, grace=self._grace)
        return Hand(spec.hand_id, sandbox, grace=self._grace, access=access)
