"""Server-sent events: how frames are written, each once.

Frames and their rules are those of EVENTS §8 and ARCHITECTURE §8: an `event:` line on every frame,
an `id:` line only where a reader may resume without skipping anything.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from gateway.transcode.encode import ObjectEncoder

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which readers pass over."""

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""What a response of frames is headed by."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BAD_IN_ID = re.compile(r"[\r\n\x00]")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it goes over the wire; no `data` where HTTP does not show it.

    `seq` is its place in the log, 0 for echoes and previews; `id` is empty for previews.
    `previews` is the id of an event whose previews it begins; the event itself ends them, and so
    does one that `ends_previews` of all.
    """

    data: bytes
    id: str
    seq: int
    previews: str = ""
    ends_previews: bool = False


class FrameCache:
    """Makes the frames of a stream's messages, each once, however many readers there are.

    How frames are spread over messages differs from reader to reader. The same wire form gives the
    same frame, so that the cache needs no notion of identity. It keeps at most `limit` bytes of
    them, the most recently used.
    """

    def __init__(
        self,
        message_type: type[Message],
        event: ObjectEncoder,
        preview: ObjectEncoder,
        limit: int,
    ) -> None:
        self._type = message_type
        self._event = event
        self._preview = preview
        self._limit = limit
        self._size = 0
        self._known: OrderedDict[bytes, Frame] = OrderedDict()

    def frames(self, message: bytes) -> list[Frame]:
        """The frames of a message of the stream."""
        response: Any = self._type.FromString(message)
        return [self._frame(frame) for frame in response.frames]

    def _frame(self, message: Any) -> Frame:  # noqa: ANN401  # a StreamFrame
        raw = message.SerializeToString()
        known = self._known.get(raw)
        if known is not None:
            self._known.move_to_end(raw)
            return known
        frame = self._known[raw] = self._make(message)
        self._size += len(raw) + len(frame.data)
        while self._size > self._limit:
            old, dropped = self._known.popitem(last=False)
            self._size -= len(old) + len(dropped.data)
        return frame

    def _make(self, message: Any) -> Frame:  # noqa: ANN401
        kind = message.WhichOneof("frame")
        if kind == "preview":
            begun = message.preview.event_start.event.id
            return Frame(write(self._preview.members(message.preview)), "", 0, begun)
        event = message.event
        members = self._event.members(event)
        data = write(members, event.id if event.seq else "")
        return Frame(
            data, event.id, event.seq, ends_previews=event.HasField("span_model_request_end")
        )


def write(members: dict[str, object] | None, frame_id: str = "") -> bytes:
    """The frame of a JSON object, named by its `type`; nothing for `None`."""
    if members is None:
        return b""
    data = orjson.dumps(members)
    if b"\n" in data or b"\r" in data:  # between the tokens of opaque JSON only
        data = _LINE_END.sub(b"\ndata: ", data)
    name = str(members["type"]).encode()
    if frame_id and not _BAD_IN_ID.search(frame_id):
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, frame_id.encode(), data)
    return b"event: %b\ndata: %b\n\n" % (name, data)
