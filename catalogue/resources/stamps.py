"""Points in time as Unix microseconds: what lists are ordered by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import DroverError, Reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NANOS = 1_000
_NANOS_PER_SECOND = 1_000_000_000
# RFC 3339 knows the years 1 to 9999.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799


def micros(time: datetime | Timestamp) -> int:
    """Unix microseconds, rounded down."""
    if isinstance(time, datetime):
        return (time - _EPOCH) // _MICROSECOND
    return time.seconds * 1_000_000 + time.nanos // _NANOS


def bound(time: Timestamp, key: str, *, lower: bool) -> int:
    """A time filter's bound as Unix microseconds; a lower one is rounded up.

    `key` names the filter in the message of the INVALID_ARGUMENT that no real time raises.
    """
    if not _FIRST <= time.seconds <= _LAST or not 0 <= time.nanos < _NANOS_PER_SECOND:
        raise DroverError(Reason.INVALID_ARGUMENT, f"{key}: must be a time of the years 1 to 9999")
    rounding = _NANOS - 1 if lower else 0
    return time.seconds * 1_000_000 + (time.nanos + rounding) // _NANOS
