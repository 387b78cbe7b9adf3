"""How often one address may show keys that nobody has (CASES A5)."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from gateway.auth import UnknownKeyError
from gateway.buckets import Buckets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chassis.clock import Clock

_KNOWN: Final = 10_000
_PREFIX: Final = 64
_TOLD_PER_MINUTE: Final = 1
_log = structlog.get_logger("gateway.guesses")


class Guesses:
    """Lets so many keys `per_minute` from one address be looked up in vain, and then no more.

    Keys that were found are remembered: they go on, whatever else comes from where they do. What
    clients write about addresses before theirs counts for nothing.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._buckets = Buckets(clock)
        self._told = Buckets(clock)
        self._known: OrderedDict[bytes, None] = OrderedDict()

    @contextmanager
    def watch(self, peer: str, digest: bytes) -> Iterator[None]:
        """The body looks up the key of a digest that somebody at `peer` has shown.

        Raises RATE_LIMITED, and what the body raises: `UnknownKeyError` if nobody has the key.
        """
        if digest in self._known:
            self._known.move_to_end(digest)
            try:
                yield
            except UnknownKeyError:
                self._known.pop(digest, None)
                raise
            return
        source = _source(peer)
        taken = self._buckets.take(source, self._per_minute)
        if taken.wait:
            raise DroverError(
                Reason.RATE_LIMITED,
                "too many keys that are not valid came from this address",
                retry_after=taken.wait,
            )
        try:
            yield
        except UnknownKeyError:
            if not taken.remaining and not self._told.take(source, _TOLD_PER_MINUTE).wait:
                _log.warning("keys_are_guessed", peer=source, per_minute=self._per_minute)
            raise
        except BaseException:
            self._buckets.give_back(source, self._per_minute)
            raise
        self._buckets.give_back(source, self._per_minute)
        self._known[digest] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)


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
