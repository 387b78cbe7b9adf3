"""All brains there are: those at an address, and every one that a name stands for.

A session is woken at one brain rather than at any, so that the next turn finds the one that knows
it: a channel that takes turns among replicas would not do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, overload

import structlog

from chassis.settings import host_and_port
from identity import reach
from services.session.clients.brain import BrainClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Self

    import grpc.aio

_NAME: Final = "dns:"
_LOOK_SECONDS: Final = 1.0
_PATIENCE: Final = 5.0

_log = structlog.get_logger("session.brains")


class Brains(Sequence[BrainClient]):
    """Those that are known of now. Of `addresses`, `dns:///NAME:PORT` are looked up by `run`.

    While a name cannot be looked up, or leads nowhere, what it led to last is kept: the brains may
    be there still. On leaving all calls end. `open_channel` is given the address of one. Raises
    `ValueError` for an address that is none.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        open_channel: Callable[[str], grpc.aio.Channel],
        *,
        look_up: Callable[[str, int], Awaitable[list[str]]] | None = None,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._open_channel = open_channel
        self._look_up = look_up or reach.look_up
        self._look_seconds = look_seconds
        # What each address of the settings stands for, and the clients of all of that.
        self._led: dict[str, list[str]] = {}
        for address in addresses:
            self._led[address] = [] if address.startswith(_NAME) else [address]
        self._names = {
            address: host_and_port(address.removeprefix(_NAME).rpartition("/")[2])
            for address, led in self._led.items()
            if not led
        }
        self._known: dict[str, BrainClient] = {}
        self._all: tuple[BrainClient, ...] = ()
        self._take_in()

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> BrainClient: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BrainClient]: ...
    def __getitem__(self, index: int | slice) -> BrainClient | Sequence[BrainClient]:
        return self._all[index]

    async def run(self) -> None:
        """Looks the names up, again and again, until cancelled."""
        while self._names:
            await self.look()
            await asyncio.sleep(self._look_seconds * random.uniform(0.75, 1.25))  # noqa: S311

    async def look(self) -> None:
        """Looks the names up once."""
        for address, (host, port) in self._names.items():
            try:
                async with asyncio.timeout(_PATIENCE):
                    found = await self._look_up(host, port)
            except (OSError, TimeoutError):
                continue
            if found:
                self._led[address] = found
        for gone in self._take_in():
            await gone.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends all calls to them."""
        known, self._known, self._all = self._known, {}, ()
        for brain in known.values():
            await brain.close()

    def _take_in(self) -> list[BrainClient]:
        """Makes clients of new brains; answers those of brains that are no more.

        One that is at work goes on to be known, though not to be woken: a brain that stops leaves
        its name first.
        """
        wanted = list(dict.fromkeys(one for led in self._led.values() for one in led))
        for address in wanted:
            if address not in self._known:
                self._known[address] = BrainClient(address, self._open_channel(address))
        before, self._all = self._all, tuple(self._known[address] for address in wanted)
        if self._names and before != self._all:
            _log.info("brains_found", brains=wanted)
        gone = [
            address
            for address, brain in self._known.items()
            if address not in wanted and not brain.is_busy
        ]
        return [self._known.pop(address) for address in gone]
