"""The lines of an export: everything there and back, and nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.transfer import lines
from cli.transfer.lines import FormatError, line_of, record_of
from drover.event.v1 import event_pb2
from drover.session.v1 import session_pb2, transfer_pb2
from tests.doubles.session_events import said, tool_use
from tests.replay import golden
from tests.replay.golden import GoldenLog

UNKNOWN = b"\xba\x3e\x03new"  # field 1,000
GOLDEN = golden.recorded()


def event_record(event):
    return transfer_pb2.SessionRecord(event=event)


def snapshot():
    record = transfer_pb2.SessionRecord()
    session = record.session
    session.session_id, session.status = "sesn_1", session_pb2.SESSION_STATUS_IDLE
    session.stop_reason.requires_action.event_ids.append("e1")
    session.metadata.update({"b": "2", "a": "1", "c": "3"})
    session.agent.metadata.update({"z": "é", "y": "\x85"})
    session.activity.active_time.nanos = 1000
    session.created_at.FromMicroseconds(1_700_000_000_123_456)
    return record


def refused(line, digest=""):
    with pytest.raises(FormatError) as caught:
        record_of(line, digest)
    return str(caught.value)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_event_of_a_log_is_the_same_again(name):
    for event in GoldenLog.read(GOLDEN[name]).events:
        line = line_of(event_record(event), "")
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert "raw" not in json.loads(line)
        again = record_of(line, "")
        assert again == event_record(event)
        assert line_of(again, "") == line


def test_the_first_line_names_the_format_and_reads_like_the_contract():
    line = line_of(snapshot(), "")
    value = json.loads(line)
    assert value["drover_export"] == 1
    assert value["session"]["status"] == "SESSION_STATUS_IDLE"
    assert value["session"]["created_at"] == "2023-11-14T22:13:20.123456Z"
    assert value["session"]["stop_reason"] == {"requires_action": {"event_ids": ["e1"]}}
    assert record_of(line, "") == snapshot()


def test_the_keys_of_maps_are_in_order_however_they_came():
    one, other = snapshot(), snapshot()
    other.session.ClearField("metadata")
    other.session.metadata.update({"c": "3", "a": "1", "b": "2"})
    assert line_of(one, "") == line_of(other, "")
    assert list(json.loads(line_of(one, ""))["session"]["metadata"]) == ["a", "b", "c"]
    updated = event_pb2.Event(id="u")
    updated.session_updated.agent.metadata.update({"b": "2", "a": "1"})
    agent = json.loads(line_of(event_record(updated), ""))["event"]["session_updated"]["agent"]
    assert list(agent["metadata"]) == ["a", "b"]


def test_no_character_of_a_line_can_take_over_a_terminal():
    line = line_of(event_record(said("\x9b31m\x1b[0m\x7f")), "")
    assert not any(byte < 0x20 for byte in line[:-1])
    assert "\x9b" not in line.decode()
    assert record_of(line, "").event == said("\x9b31m\x1b[0m\x7f")


def unknown_anywhere():
    event = said("hi", "e1")
    yield event_pb2.Event.FromString(event.SerializeToString() + UNKNOWN)
    nested = said("hi", "e1")
    nested.agent_message.content[0].ParseFromString(
        nested.agent_message.content[0].SerializeToString() + UNKNOWN
    )
    yield nested
    yield event_pb2.Event.FromString(event_pb2.Event(id="e1").SerializeToString() + UNKNOWN)
    yield event_pb2.Event.FromString(UNKNOWN)


@pytest.mark.parametrize("event", list(unknown_anywhere()), ids=["top", "nested", "type", "alone"])
def test_what_json_cannot_say_travels_beside_it(event):
    line = line_of(event_record(event), "")
    assert base64.b64decode(json.loads(line)["raw"])
    again = record_of(line, "")
    assert again.event.SerializeToString() == event.SerializeToString()
    assert line_of(again, "") == line


def test_a_time_that_no_calendar_has_travels_as_raw():
    event = said("hi", "e1")
    event.processed_at.seconds = 1 << 60
    line = line_of(event_record(event), "")
    assert json.loads(line)["event"] == {}
    assert record_of(line, "").event == event


def test_the_last_line_holds_for_all_before_it():
    record = transfer_pb2.SessionRecord()
    record.end.events, record.end.waiting = 3, 1
    digest = hashlib.sha256(b"what came before").hexdigest()
    line = line_of(record, digest)
    assert json.loads(line)["end"] == {"events": "3", "waiting": "1", "sha256": digest}
    assert record_of(line, digest) == record
    assert "another digest" in refused(line, "0" * 64)
    empty = transfer_pb2.SessionRecord(end=transfer_pb2.SessionRecordsEnd())
    assert record_of(line_of(empty, digest), digest).HasField("end")


GOOD = json.loads(line_of(event_record(tool_use("e1")), ""))
HOSTILE = {
    "nothing": (b"", "is not JSON"),
    "no JSON": (b"event e1\n", "is not JSON"),
    "half a line": (json.dumps(GOOD).encode()[:-3], "is not JSON"),
    "two values": (b'{"event": {}} {"event": {}}', "is not JSON"),
    "other text": (b'{"event": {"id": "\xff\xfe"}}', "is not UTF-8"),
    "utf-16": ('{"event": {}}'.encode("utf-16"), "is not UTF-8"),
    "a list": (b"[1, 2]", "is no JSON object"),
    "a number": (b"7", "is no JSON object"),
    "an empty object": (b"{}", "is no line of an export"),
    "another kind": (b'{"events": []}', "is no line of an export"),
    "two kinds": (b'{"event": {}, "waiting": {}}', 'has "waiting", which no line has'),
    "something more": (b'{"event": {}, "x": 1}', 'has "x", which no line has'),
    "a key twice": (b'{"event": {"id": "a", "id": "b"}}', "has a key twice"),
    "null": (b'{"event": null}', 'has "event", which is no object'),
    "text for an object": (b'{"waiting": "hi"}', 'has "waiting", which is no object'),
    "no format": (b'{"session": {}}', "is not of format 1"),
    "another format": (b'{"drover_export": 2, "session": {}}', "is not of format 1"),
    "a format that is text": (b'{"drover_export": "1", "session": {}}', "is not of format 1"),
    "a field that there is not": (b'{"event": {"no_such": 1}}', "does not fit the contract"),
    "a list for a number": (b'{"event": {"seq": [1]}}', "does not fit the contract"),
    "an object for text": (b'{"event": {"id": {}}}', "does not fit the contract"),
    "text for a message": (b'{"event": {"agent_message": "hi"}}', "does not fit the contract"),
    "a number for a list": (b'{"event": {"agent_message": {"content": 7}}}', "does not fit"),
    "two variants": (b'{"event": {"agent_message": {}, "user_message": {}}}', "does not fit"),
    "a position beyond all": (b'{"event": {"seq": 9e99}}', "does not fit the contract"),
    "a time that is none": (b'{"event": {"processed_at": "today"}}', "does not fit"),
    "not a number": (b'{"event": {"seq": NaN}}', "has NaN, which is not JSON"),
    "a half character": (b'{"event": {"id": "\\ud800"}}', "does not fit the contract"),
    "an endless number": (b'{"event": {"seq": ' + b"9" * 10_000 + b"}}", "is not JSON"),
    "raw that is no text": (b'{"event": {}, "raw": 7}', "has a raw that is no text"),
    "raw that is no base64": (b'{"event": {}, "raw": "!!"}', "has a raw that is no message"),
    "raw that is no message": (b'{"event": {}, "raw": "/////w=="}', "has a raw that is no message"),
    "raw that says otherwise": (
        b'{"event": {"id": "a"}, "raw": "%s"}' % base64.b64encode(b"\x0a\x01b"),
        "says one thing and has another as raw",
    ),
    "a digest that is none": (b'{"end": {"events": 1, "sha256": 7}}', "tells another digest"),
    "a deep nest": (b'{"event": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "a deep nest of objects": (
        b'{"event": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
        "nested too deeply",
    ),
    "a bomb of small lists": (b'{"event": [' + b"[]," * 700_000 + b"[]]}", "more than 500,000"),
    "a bomb of small keys": (
        b'{"event": {' + b",".join(b'"%d":0' % n for n in range(600_000)) + b"}}",
        "more than 500,000 parts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_export_says_is_refused_with_a_reason(name):
    line, text = HOSTILE[name]
    assert text in refused(line)


def test_a_line_beyond_all_bounds_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 2 * 1024 * 1024)
    assert refused(b"x" * (2 * 1024 * 1024 + 1)) == "is longer than 2 MB"


def test_a_large_text_full_of_brackets_is_no_bomb():
    event = said('[{,\\"' * 400_000, "e1")
    assert record_of(line_of(event_record(event), ""), "").event == event


def test_a_reason_quotes_no_more_than_a_line_of_what_it_refuses():
    text = refused(b'{"event": {"' + b"\\u001b" * 4000 + b'": 1}}')
    assert len(text) < 400
    assert "\x1b" not in text


KEYS = st.sampled_from(sorted(GOOD["event"])) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted(GOOD["event"])) | st.text(max_size=5), below, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(value=JSON, key=st.sampled_from(["event", "waiting", "session", "end", "x"]), raw=JSON)
def test_any_json_is_a_record_or_refused(value, key, raw):
    whole = {"drover_export": 1} if key == "session" else {}
    for line in (whole | {key: value}, whole | {key: value, "raw": raw}):
        try:
            record_of(json.dumps(line).encode(), "")
        except FormatError as error:
            assert str(error)  # noqa: PT017


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(json.dumps(GOOD)) - 1), bytes_=st.binary(max_size=4))
def test_any_damage_to_a_line_leaves_a_record_or_is_refused(place, bytes_):
    good = json.dumps(GOOD).encode()
    try:
        record_of(good[:place] + bytes_ + good[place + 1 :], "")
    except FormatError as error:
        assert str(error)  # noqa: PT017
