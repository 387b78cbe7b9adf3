"""Token buckets by name: so many a minute, saved up for a minute at most."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from chassis.clock import Clock

_MOST: Final = 10_000
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What is left of a bucket of `limit` tokens, and in how many seconds it is full again.

    `wait` is how many seconds there is no token to take; without any, one was taken.
    """

    limit: int
    remaining: int
    full_in: float
    wait: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """Buckets by any names. Of too many the one that was used least recently is forgotten."""

    def __init__(self, clock: Clock, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def take(self, name: Hashable, per_minute: int) -> Taken:
        """Takes a token, if there is one: as many come in a minute as the bucket holds."""
        bucket = self._filled(name, per_minute)
        wait = 0.0
        if bucket.tokens >= 1:
            bucket.tokens -= 1
        else:
            wait = (1 - bucket.tokens) * _MINUTE / per_minute
        full_in = (per_minute - bucket.tokens) * _MINUTE / per_minute
        return Taken(per_minute, int(bucket.tokens), full_in, wait)

    def give_back(self, name: Hashable, per_minute: int) -> None:
        """Puts a token back that was taken and not needed."""
        bucket = self._filled(name, per_minute)
        bucket.tokens = min(per_minute, bucket.tokens + 1)

    def _filled(self, name: Hashable, per_minute: int) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(per_minute, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
            return bucket
        self._buckets.move_to_end(name)
        since = max(0.0, now - bucket.at)
        bucket.tokens = min(per_minute, bucket.tokens + since * per_minute / _MINUTE)
        bucket.at = now
        return bucket
