from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from gateway.transcode import timestamps
from gateway.transcode.refusal import Refused


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        (Timestamp(seconds=0), "1970-01-01T00:00:00Z"),
        (Timestamp(seconds=1_790_000_000, nanos=5_000_000), "2026-09-21T14:13:20.005Z"),
        (Timestamp(seconds=1_790_000_000, nanos=5_000), "2026-09-21T14:13:20.000005Z"),
        (Timestamp(seconds=-1, nanos=1), "1969-12-31T23:59:59.000000001Z"),
    ],
)
def test_time_is_utc_with_as_much_fraction_as_it_has(stamp: Timestamp, text: str) -> None:
    assert timestamps.write(stamp) == text


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31t12:00:00z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500Z"),
        ("2026-01-31T12:00:00.1234567899-00:30", "2026-01-31T12:30:00.123456789Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
    ],
)
def test_any_offset_is_read(text: str, means: str) -> None:
    stamp = Timestamp()
    timestamps.read(text, stamp)
    assert timestamps.write(stamp) == means


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:00:00 00:00",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:60Z",
        "٢٠٢٦-01-31T12:00:00Z",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="RFC 3339"):
        timestamps.read(text, Timestamp())


@given(st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999_999_999))
def test_every_time_comes_back_to_the_nanosecond(seconds: int, nanos: int) -> None:
    stamp, back = Timestamp(seconds=seconds, nanos=nanos), Timestamp()
    timestamps.read(timestamps.write(stamp), back)
    assert back == stamp
