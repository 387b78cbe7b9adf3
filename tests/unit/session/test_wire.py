from __future__ import annotations

import pytest

from drover.session.v1 import lease_pb2
from services.session.rpc import wire
from tests.doubles.session_events import message, said


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300, 16_383, 16_384, 3_000_000])
def test_stored_events_are_put_together_as_if_they_had_been_added(size):
    events = [message("x" * size), said(""), message("y")]
    together = lease_pb2.LogSlice(events=events)
    stored = [event.SerializeToString() for event in events]
    assert lease_pb2.LogSlice.EVENTS_FIELD_NUMBER == 1
    assert wire.repeated(1, stored) == together.SerializeToString()


def test_field_of_a_high_number_has_a_longer_tag():
    assert wire.repeated(100, [b"a", b""]) == b"\xa2\x06\x01a\xa2\x06\x00"
    assert wire.repeated(100, []) == b""


def test_what_a_message_has_already_stays():
    response = lease_pb2.LeaseResponse()
    response.log.events.add().CopyFrom(message("first"))
    response.log.MergeFromString(wire.repeated(1, [message("second").SerializeToString()]))
    assert [one.user_message.content[0].text.text for one in response.log.events] == [
        "first",
        "second",
    ]
