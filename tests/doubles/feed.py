"""A session's feed in memory, driven step by step: what has been told and what has arrived differ.

It behaves as the session service's streams do: a subscription gets what is told once it stands,
stamped events from behind its position, and previews from the beginning of an event on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import grpc.aio

from chassis.errors import DroverError, Reason
from chassis.grpc.status import DETAILS_KEY, to_status
from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from drover.session.v1 import session_service_pb2 as pb
from gateway.subscription import POSITION_KEY
from tests.doubles.platform import message


def failed(error: DroverError) -> grpc.aio.AioRpcError:
    """How an error arrives at a client."""
    details = grpc.aio.Metadata((DETAILS_KEY, to_status(error).SerializeToString()))
    return grpc.aio.AioRpcError(
        grpc.StatusCode[error.rule.grpc], grpc.aio.Metadata(), details, error.message
    )


class Feed:
    """One session's log, and the subscriptions that follow it: `past` are all there ever were."""

    def __init__(self) -> None:
        self.log: list[event_pb2.Event] = []
        self.calls: list[Call] = []
        self.past: list[Call] = []
        self.is_down = False

    def subscribe(self, request: pb.StreamEventsRequest, *, wait_for_ready: bool = False) -> Any:
        """The call, which is yet to be let in."""
        call = Call(self, request, patient=wait_for_ready)
        self.calls.append(call)
        self.past.append(call)
        return call

    def echo(self, event_id: str) -> None:
        """Accepts an event into the inbox."""
        self._tell(pb.StreamFrame(event=message(event_id, "x")))

    def append(self, event_id: str) -> None:
        """Appends an event to the log."""
        self.log.append(message(event_id, "x", seq=len(self.log) + 1))
        self._tell(pb.StreamFrame(event=self.log[-1]))

    def begin(self, event_id: str) -> None:
        """Begins to preview an event."""
        preview = preview_pb2.Preview()
        preview.event_start.event.type, preview.event_start.event.id = "agent.message", event_id
        self._tell(pb.StreamFrame(preview=preview))

    def add(self, event_id: str, text: str) -> None:
        """Previews more of an event."""
        preview = preview_pb2.Preview()
        preview.event_delta.event_id = event_id
        preview.event_delta.delta.content.text = text
        self._tell(pb.StreamFrame(preview=preview))

    def _tell(self, frame: pb.StreamFrame) -> None:
        for call in self.calls:
            call.hear(frame)


class Call:
    """One subscription. It gives what is behind the first `began_at` events of the log."""

    def __init__(self, feed: Feed, request: pb.StreamEventsRequest, *, patient: bool) -> None:
        self.began_at = 0
        self.stands = False
        self.pipe: list[pb.StreamFrame] = []
        self._feed = feed
        self._patient = patient
        self._after = request.after_event_id if request.HasField("after_event_id") else None
        self._wants_previews = bool(request.event_deltas)
        self._previewed: set[str] = set()
        self._position = ""
        self._messages: deque[list[pb.StreamFrame] | DroverError | None] = deque()
        self._more = asyncio.Event()
        self._answered = asyncio.Event()
        self._error: DroverError | None = None

    @property
    def unread(self) -> int:
        """Messages that have arrived and that nobody has read."""
        return len(self._messages)

    @property
    def underway(self) -> list[pb.StreamFrame]:
        """Frames that nobody has read."""
        arrived = [frame for given in self._messages if isinstance(given, list) for frame in given]
        return [*arrived, *self.pipe]

    # what the service does

    def let_in(self) -> None:
        """Has it stand, or refuses it."""
        if self._answered.is_set():
            return
        feed = self._feed
        if feed.is_down:
            if not self._patient:
                self.cut()
            return
        ids = ["", *(event.id for event in feed.log)]
        if self._after is not None and self._after not in ids:
            self.cut(DroverError(Reason.INVALID_ARGUMENT, "after: there is no such event"))
            return
        start = len(feed.log) if self._after is None else ids.index(self._after)
        self.pipe = [pb.StreamFrame(event=event) for event in feed.log[start:]]
        self.began_at, self.stands = start, True
        self._position = ids[-1]
        self._answered.set()

    def hear(self, frame: pb.StreamFrame) -> None:
        """Takes in what is told to all."""
        if not self.stands:
            return
        if frame.HasField("preview"):
            begun = frame.preview.event_start.event.id
            if not self._wants_previews:
                return
            if begun:
                self._previewed.add(begun)
            elif frame.preview.event_delta.event_id not in self._previewed:
                return
        elif frame.event.seq:
            self._previewed.discard(frame.event.id)
        self.pipe.append(frame)

    def deliver(self, count: int) -> None:
        """Has so many frames arrive, as one message."""
        frames, self.pipe = self.pipe[:count], self.pipe[count:]
        if frames and self.stands:
            self._arrive(frames)

    def end(self) -> None:
        """Ends it well, behind what has arrived."""
        self._forget()
        self._arrive(None)

    def cut(self, error: DroverError | None = None) -> None:
        """Breaks it: what has not arrived is gone."""
        self._forget()
        self._error = error or DroverError(Reason.UNAVAILABLE, "cut")
        self._answered.set()
        self._arrive(self._error)

    def _arrive(self, given: list[pb.StreamFrame] | DroverError | None) -> None:
        self._messages.append(given)
        self._more.set()

    def _forget(self) -> None:
        self.stands, self.pipe = False, []
        if self in self._feed.calls:
            self._feed.calls.remove(self)

    # what its client sees of it

    async def initial_metadata(self) -> Any:
        await self._answered.wait()
        if self._error is not None:
            raise failed(self._error)
        return [(POSITION_KEY, self._position)]

    async def read(self) -> Any:
        while not self._messages:
            self._more.clear()
            await self._more.wait()
        given = self._messages.popleft()
        if isinstance(given, DroverError):
            raise failed(given)
        if given is None:
            return grpc.aio.EOF
        return pb.StreamEventsResponse(frames=given).SerializeToString()

    def done(self) -> bool:
        return self._error is not None

    async def code(self) -> Any:
        return grpc.StatusCode.OK

    def cancel(self) -> None:
        self._forget()
