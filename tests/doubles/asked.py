"""A service in memory that records what it is asked."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.context import current_call
from drover.api.v1.request_key_pb2 import RequestKey


def stamp(seconds: int = 1_790_000_000, nanos: int = 0) -> Timestamp:
    return Timestamp(seconds=seconds, nanos=nanos)


class Asked:
    """What was asked of a service, and the failure that the next call shall meet.

    `keys` are what the requests were told by, `None` for those without.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.keys: list[RequestKey | None] = []
        self.failure: Exception | None = None

    def note(self, request: Any) -> None:
        self.requests.append(request)
        key = current_call().idempotency
        self.keys.append(RequestKey.FromString(key) if key else None)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    @property
    def last(self) -> Any:
        return self.requests[-1]
