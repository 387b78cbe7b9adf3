"""How often one address may show keys that nobody has (CASES A5)."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from chassis.errors import DroverError, Reason
from gateway.auth import UnknownKeyError
from gateway.buckets import Buckets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from gateway.buckets import Taken

T = TypeVar("T")

_KNOWN: Final = 10_000
_PREFIX: Final = 64
_TOLD_PER_MINUTE: Final = 1
_log = structlog.get_logger("gateway.guesses")


@dataclass(slots=True)
class _UnderWay:
    """Look-ups from one source that have not come back, and when to see how they have."""

    count: int = 0
    back: asyncio.Event = field(default_factory=asyncio.Event)


class Guesses:
    """Lets so many keys `per_minute` from one address be looked up in vain, and then no more.

    Keys that were found are remembered: they go on, whatever else comes from where they do. Of
    more than may be wrong at once the others wait, for all may be right. What clients write about
    addresses before theirs counts for nothing.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._buckets = Buckets(clock)
        self._told = Buckets(clock)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._under_way: dict[str, _UnderWay] = {}

    async def find(self, peer: str, digest: bytes, look_up: Callable[[], Awaitable[T]]) -> T:
        """Whose key it is that somebody at `peer` has shown, by its digest.

        Raises RATE_LIMITED, and what `look_up` raises: `UnknownKeyError` if nobody has the key.
        """
        if digest not in self._known:
            source = _source(peer)
            taken = await self._share(source, digest)
            if taken is not None:
                return await self._new(source, digest, taken, look_up)
        self._known.move_to_end(digest)
        try:
            return await look_up()
        except UnknownKeyError:
            self._known.pop(digest, None)
            raise

    async def _share(self, source: str, digest: bytes) -> Taken | None:
        """One of the wrong keys that a source may show; `None` if the key was found meanwhile."""
        while digest not in self._known:
            taken = self._buckets.take(source, self._per_minute)
            if not taken.wait:
                return taken
            under_way = self._under_way.get(source)
            if under_way is None:
                raise DroverError(
                    Reason.RATE_LIMITED,
                    "too many keys that are not valid came from this address",
                    retry_after=taken.wait,
                )
            await under_way.back.wait()
        return None

    async def _new(
        self, source: str, digest: bytes, taken: Taken, look_up: Callable[[], Awaitable[T]]
    ) -> T:
        under_way = self._under_way.setdefault(source, _UnderWay())
        under_way.count += 1
        try:
            found = await look_up()
        except UnknownKeyError:
            if not taken.remaining and not self._told.take(source, _TOLD_PER_MINUTE).wait:
                _log.warning("keys_are_guessed", peer=source, per_minute=self._per_minute)
            raise
        except BaseException:
            self._buckets.give_back(source, self._per_minute)
            raise
        else:
            self._buckets.give_back(source, self._per_minute)
            self._known[digest] = None
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
            # Those who wait with the same key need not any more.
            under_way.back.set()
            under_way.back = asyncio.Event()
            return found
        finally:
            under_way.count -= 1
            if not under_way.count:
                del self._under_way[source]
                under_way.back.set()


def _source(peer: str) -> str:
    """Who an address stands for: of version 6, where one host has many, its network."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _PREFIX), strict=False))
