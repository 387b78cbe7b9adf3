"""How many requests a minute a key may make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_API
from gateway.buckets import Buckets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from chassis.clock import Clock
    from gateway.auth import Caller
    from gateway.buckets import Taken

_HEADER: Final = "anthropic-ratelimit-requests"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a request has left its key."""

    taken: Taken
    at: datetime

    @property
    def headers(self) -> Mapping[str, str]:
        """How the official API tells it, and its client reads it."""
        full_at = self.at + timedelta(seconds=self.taken.full_in)
        return {
            f"{_HEADER}-limit": str(self.taken.limit),
            f"{_HEADER}-remaining": str(self.taken.remaining),
            f"{_HEADER}-reset": full_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def check(self) -> None:
        """Raises RATE_LIMITED when nothing was left."""
        if self.taken.wait:
            raise DroverError(
                Reason.RATE_LIMITED,
                f"this key may make {self.taken.limit} requests a minute",
                retry_after=self.taken.wait,
            )


class Quotas:
    """Counts the requests of API keys, in this gateway alone.

    A key without a limit of its own has the `usual` one, if there is one. Workers have none: their
    work would not wait.
    """

    def __init__(self, usual: int | None, clock: Clock) -> None:
        self._usual = usual
        self._clock = clock
        self._buckets = Buckets(clock)

    def take(self, caller: Caller) -> Quota | None:
        """Counts a request; `None` for a caller without a limit."""
        limit = caller.requests_per_minute or self._usual
        if limit is None or caller.kind != KEY_KIND_API:
            return None
        return Quota(self._buckets.take(caller.key, limit), self._clock.now())
