"""Positions and stamps: how an event enters the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from services.session.domain.ports import LogEntry
from services.session.domain.session import MICROS

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from services.session.domain.session import SessionState


def stamp(state: SessionState, event: event_pb2.Event, event_type: str, now: int) -> LogEntry:
    """Gives the event the next position and a time that does not lie before the last one's."""
    state.head_seq += 1
    state.head_at = max(state.head_at, now)
    event.seq = state.head_seq
    event.processed_at.seconds, micros = divmod(state.head_at, MICROS)
    event.processed_at.nanos = micros * 1000
    return LogEntry(event, event_type)


def unstamp(event: event_pb2.Event) -> None:
    """Clears what only this service gives: a client's word about it counts for nothing."""
    event.ClearField("seq")
    event.ClearField("processed_at")
    event.ClearField("thread_id")


def timestamp(micros: int) -> Timestamp:
    """Microseconds since 1970 as a protobuf timestamp."""
    seconds, rest = divmod(micros, MICROS)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def micros_of(event: event_pb2.Event) -> int:
    """When a stamped event entered the log, in microseconds since 1970."""
    return event.processed_at.seconds * MICROS + event.processed_at.nanos // 1000
