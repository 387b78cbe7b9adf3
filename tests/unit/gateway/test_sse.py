from __future__ import annotations

from typing import Any

from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2, session_service_pb2
from gateway.sse import Frame, FrameCache, write
from gateway.transcode.encode import Encoders
from gateway.transcode.shape import Shapes
from tests.doubles.platform import message

ENCODERS = Encoders(Shapes())


class Counting:
    """An encoder that counts how often it is asked."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.asked = 0

    def members(self, message: Any) -> Any:
        self.asked += 1
        return self._encoder.members(message)


def cache(limit: int = 1_000_000) -> tuple[FrameCache, Counting]:
    counting: Any = Counting(ENCODERS.of(event_pb2.Event.DESCRIPTOR))
    preview = ENCODERS.of(preview_pb2.Preview.DESCRIPTOR)
    return FrameCache(session_service_pb2.StreamEventsResponse, counting, preview, limit), counting


def raw(*events: event_pb2.Event) -> bytes:
    frames = [session_service_pb2.StreamFrame(event=event) for event in events]
    return session_service_pb2.StreamEventsResponse(frames=frames).SerializeToString()


def frame(frames: FrameCache, message: bytes) -> Frame:
    [only] = frames.frames(message)
    return only


def test_a_logged_event_carries_its_id_and_an_echo_does_not() -> None:
    frames, _ = cache()
    logged = frame(frames, raw(message("sevt_1", "x", seq=4)))
    echo = frame(frames, raw(message("sevt_1", "x")))

    assert logged.data.startswith(b'event: user.message\nid: sevt_1\ndata: {"type":"user.message",')
    assert logged.data.endswith(b"}\n\n")
    assert (logged.id, logged.seq) == ("sevt_1", 4)
    assert echo.data.startswith(b'event: user.message\ndata: {"type":')
    assert (echo.id, echo.seq) == ("sevt_1", 0)


def test_previews_carry_no_id() -> None:
    preview = preview_pb2.Preview()
    preview.event_start.event.id, preview.event_start.event.type = "sevt_9", "agent.message"
    stream = session_service_pb2.StreamEventsResponse(frames=[{"preview": preview}])

    made = frame(cache()[0], stream.SerializeToString())

    assert made.data == (
        b"event: event_start\n"
        b'data: {"type":"event_start","event":{"type":"agent.message","id":"sevt_9"}}\n\n'
    )
    assert (made.id, made.seq) == ("", 0)


def test_an_event_is_encoded_once_however_many_read_it() -> None:
    frames, encoder = cache()
    first = frame(frames, raw(message("sevt_1", "x", seq=1)))
    assert all(frame(frames, raw(message("sevt_1", "x", seq=1))) is first for _ in range(200))
    assert encoder.asked == 1


def test_an_event_is_encoded_once_whatever_comes_in_the_same_message() -> None:
    frames, encoder = cache()
    first, second = message("sevt_1", "x", seq=1), message("sevt_2", "y", seq=2)
    together = frames.frames(raw(first, second))
    assert [made.id for made in together] == ["sevt_1", "sevt_2"]
    assert frame(frames, raw(second)) is together[1]
    assert frame(frames, raw(first)) is together[0]
    assert encoder.asked == 2


def test_what_is_remembered_stays_within_its_limit() -> None:
    frames, encoder = cache(limit=10_000)
    for number in range(1, 100):
        frame(frames, raw(message(f"sevt_{number}", "x" * 500, seq=number)))
    assert frames._size <= 10_000
    frame(frames, raw(message("sevt_99", "x" * 500, seq=99)))
    assert encoder.asked == 99
    frame(frames, raw(message("sevt_1", "x" * 500, seq=1)))
    assert encoder.asked == 100


def test_an_event_larger_than_the_cache_is_still_shown() -> None:
    frames, _ = cache(limit=100)
    assert b"x" * 500 in frame(frames, raw(message("sevt_1", "x" * 500, seq=1))).data
    assert frames._size == 0


def test_an_event_of_a_later_release_is_not_shown() -> None:
    unknown = event_pb2.Event(id="sevt_1", seq=1)
    unknown.MergeFromString(b"\xfa\x3e\x00")  # a payload with a field number of the future
    assert frame(cache()[0], raw(unknown)).data == b""


def test_line_ends_between_the_tokens_of_opaque_json_do_not_break_the_frame() -> None:
    event = event_pb2.Event(id="sevt_1", seq=1)
    event.agent_tool_use.input = '{\r\n "a":\n1,\r"b": "x\\n"}'
    made = frame(cache()[0], raw(event)).data

    head, *lines = made.decode().removesuffix("\n\n").split("\n")
    assert head == "event: agent.tool_use"
    assert lines[0] == "id: sevt_1"
    assert all(line.startswith("data: ") for line in lines[1:])
    assert len(lines) == 5


def test_an_id_cannot_forge_a_line() -> None:
    assert b"\nid:" not in write({"type": "x"}, "a\nevent: error")
    assert write({"type": "x"}, "a") == b'event: x\nid: a\ndata: {"type":"x"}\n\n'
