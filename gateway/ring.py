"""The frames that a session's readers were shown last, for those who come late or read slowly."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from gateway.sse import Frame

_OVERHEAD = 200
"""Bytes that a frame takes beside its data, roughly."""


@dataclass(frozen=True, slots=True)
class _Batch:
    frames: Sequence[Frame]
    arrived: float
    size: int


class Ring:
    """Batches of frames in their order, numbered from 0; the oldest go first.

    Keeps at most `limit` bytes, and none for longer than `seconds`.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._batches: deque[_Batch] = deque()
        self._size = 0
        self._places: dict[str, int] = {}  # of stamped events: the number of their batch
        self._lost = -math.inf  # when the youngest of those that are gone arrived
        self._first = 0

    @property
    def end(self) -> int:
        """The number of the batch to come."""
        return self._first + len(self._batches)

    def add(self, frames: Sequence[Frame], now: float) -> None:
        """Takes in a batch."""
        size = sum(len(frame.data) + _OVERHEAD for frame in frames)
        for frame in frames:
            if frame.seq:
                self._places[frame.id] = self.end
        self._batches.append(_Batch(frames, now, size))
        self._size += size
        self.trim(now)

    def trim(self, now: float) -> None:
        """Lets go of what is too much or too old."""
        while self._batches and (
            self._size > self._limit or self._batches[0].arrived < now - self._seconds
        ):
            batch = self._batches.popleft()
            self._first += 1
            self._size -= batch.size
            self._lost = batch.arrived
            for frame in batch.frames:
                self._places.pop(frame.id, None)

    def arrived(self, event_id: str) -> float:
        """When a stamped event came; −∞ if it is not here."""
        place = self._places.get(event_id)
        return -math.inf if place is None else self._batches[place - self._first].arrived

    def read(self, number: int, limit: int) -> tuple[list[Frame], int] | None:
        """Frames from a batch on, of about `limit` bytes, and the number to go on with.

        None where they are no longer all here.
        """
        if number < self._first:
            return None
        frames: list[Frame] = []
        for batch in islice(self._batches, number - self._first, None):
            frames += batch.frames
            number += 1
            limit -= batch.size
            if limit <= 0:
                break
        return frames, number

    def behind(
        self, position: str, newest: str | None, since: float, shown: Container[str]
    ) -> list[Frame] | None:
        """What a reader is owed who has seen the log up to the event `position`.

        All stamped events behind it, and echoes that have come `since` and were not `shown`; no
        previews, which may be dropped. `newest` is the last stamped event of all. None where
        something that may be owed is no longer here.
        """
        place = self._places.get(position)
        if place is None:
            if position != newest or self._lost >= since:
                return None
            place = self._first
        owed: list[Frame] = []
        for batch in islice(self._batches, place - self._first, None):
            for frame in batch.frames:
                if frame.seq and frame.id == position:
                    owed.clear()
                elif frame.seq or (frame.id and batch.arrived >= since and frame.id not in shown):
                    owed.append(frame)
        return owed
