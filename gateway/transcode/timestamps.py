"""RFC 3339 text to and from `google.protobuf.Timestamp`, to the nanosecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gateway.transcode.refusal import Refused

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-]\d\d:\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP_SECOND = 60


def write(stamp: Timestamp) -> str:
    """UTC with `Z`, and 0, 3, 6 or 9 digits of fraction as protobuf's own JSON has."""
    moment = _EPOCH + timedelta(seconds=stamp.seconds)
    text = moment.isoformat()[:19]
    nanos = stamp.nanos
    if not nanos:
        return f"{text}Z"
    if nanos % 1_000:
        return f"{text}.{nanos:09}Z"
    if nanos % 1_000_000:
        return f"{text}.{nanos // 1_000:06}Z"
    return f"{text}.{nanos // 1_000_000:03}Z"


def read(text: str, into: Timestamp) -> None:
    """Sets `into` from RFC 3339 text with any offset; a leap second is the next one's start."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise _not_a_timestamp()
    day, minute, second, fraction, offset = match.groups()
    leap = int(second) == _LEAP_SECOND
    try:
        moment = datetime.fromisoformat(
            f"{day}T{minute}:{'59' if leap else second}{offset or '+00:00'}"
        )
        seconds = (moment - _EPOCH) // timedelta(seconds=1) + leap
        into.FromNanoseconds(seconds * 1_000_000_000 + int((fraction or "0")[:9].ljust(9, "0")))
    except (ValueError, OverflowError):
        raise _not_a_timestamp() from None


def _not_a_timestamp() -> Refused:
    return Refused("must be an RFC 3339 timestamp such as 2026-01-31T12:00:00Z")
