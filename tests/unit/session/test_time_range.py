"""Time filters in nanoseconds, over stamps in microseconds."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from services.session.domain.ports import TimeRange
from services.session.rpc.parts import time_range

EXACT = Timestamp(seconds=1, nanos=5_000)  # 1,000,005 µs
BETWEEN = Timestamp(seconds=1, nanos=5_001)


def made(**bounds):
    return time_range(**{"gt": None, "gte": None, "lt": None, "lte": None} | bounds)


@pytest.mark.parametrize(
    ("bound", "time", "expected"),
    [
        ("gt", EXACT, TimeRange(low=1_000_006)),
        ("gt", BETWEEN, TimeRange(low=1_000_006)),
        ("gte", EXACT, TimeRange(low=1_000_005)),
        ("gte", BETWEEN, TimeRange(low=1_000_006)),
        ("lt", EXACT, TimeRange(high=1_000_004)),
        ("lt", BETWEEN, TimeRange(high=1_000_005)),
        ("lte", EXACT, TimeRange(high=1_000_005)),
        ("lte", BETWEEN, TimeRange(high=1_000_005)),
    ],
)
def test_a_bound_is_exact_to_the_nanosecond(bound, time, expected):
    assert made(**{bound: time}) == expected


def test_the_narrower_of_two_bounds_counts():
    later = Timestamp(seconds=2)
    assert made(gt=EXACT, gte=later) == TimeRange(low=2_000_000)
    assert made(lt=later, lte=EXACT) == TimeRange(high=1_000_005)


def test_no_bounds_are_no_filter():
    assert not made()


def test_times_out_of_all_bounds_can_be_compared_with():
    far = made(gt=Timestamp(seconds=-(1 << 62)), lt=Timestamp(seconds=1 << 62))
    assert -(1 << 63) < far.low < far.high < 1 << 63
