"""The sandboxes' network: gives each its way out."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from chassis.errors import DroverError
from services.hands.backends.port import BackendUnavailable
from services.hands.egress.access import Access
from services.hands.egress.cut_off import missing
from services.hands.egress.listener import Listener
from services.hands.egress.place import Place, system_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from chassis.clock import Clock
    from services.hands.egress.grants import Grants
    from services.hands.egress.metrics import EgressMetrics
    from services.hands.egress.proxy import ProxyAddress
    from services.hands.hand import Hand


class Network:
    """Attaches sandboxes to the vault proxy. `directory` is the hands' own.

    `most` bounds the connections of each. `tasks` owns their beginnings.
    """

    def __init__(
        self,
        directory: Path,
        proxy: ProxyAddress,
        grants: Grants,
        tasks: asyncio.TaskGroup,
        *,
        most: int,
        clock: Clock,
        metrics: EgressMetrics,
    ) -> None:
        self._directory = directory.absolute() / "egress"
        self._proxy = proxy
        self.grants = grants
        self._tasks = tasks
        self._most = most
        self._clock = clock
        self._metrics = metrics
        self._bundle = b""

    async def start(self) -> None:
        """Drops what a dead process left. No sandbox of it may run any more."""
        await asyncio.to_thread(self._start)

    async def attach(self, hand_id: str, owner: int | None) -> Access:
        """The way out of a sandbox that is about to be made, whose user is `owner`.

        Raises `BackendUnavailable`.
        """
        place = Place(self._directory / hand_id, self._bundle)
        access = Access(hand_id, place, self.grants, self._tasks)
        listener = Listener(
            access.allow,
            self._proxy,
            self._tasks,
            most=self._most,
            clock=self._clock,
            metrics=self._metrics,
        )
        try:
            await listener.listen(place.lay_out(owner))
        except OSError as error:
            place.remove()
            text = f"the sandbox's way out could not be made: {error.strerror or error}"
            raise BackendUnavailable(text) from error
        access.listen(listener)
        return access

    async def cut_off(self, session_id: str, hand: Hand) -> None:
        """Finds out what a session misses whose sandbox has no way out. Raises nothing."""
        try:
            grant = await self.grants.current(session_id, hand.id)
        except DroverError:
            return  # it is told of it with the next sandbox
        finally:
            self.grants.drop(session_id, hand.id)
        hand.missing = missing(grant, hand.backend)

    def _start(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o711)  # to pass through, not to look into
        self._bundle = system_bundle()
