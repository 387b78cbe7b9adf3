"""What the service's transactions will look at, told ahead: see `ports.About`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.domain import event as events_of
from services.session.domain.ports import About

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1 import event_pb2
    from drover.session.v1 import lease_pb2
    from services.session.domain.session import SessionRef


def appending(ref: SessionRef, requests: Sequence[lease_pb2.AppendEvents]) -> About:
    """About `append.append`, and `holding.open_lease` with appends that come with the opening."""
    ids: list[str] = []
    calls: list[str] = []
    takes = False
    for request in requests:
        takes = takes or bool(request.take)
        _note(request.events, ids, calls)
    return About(ref, logged=ids, calls=calls, waiting=takes)


def emitting(ref: SessionRef, events: Sequence[event_pb2.Event]) -> About:
    """About `append.emit`."""
    ids: list[str] = []
    calls: list[str] = []
    _note(events, ids, calls)
    return About(ref, logged=ids, calls=calls)


def accepting(ref: SessionRef, events: Sequence[event_pb2.Event]) -> About:
    """About `accept.accept`."""
    ids: list[str] = []
    calls: list[str] = []
    _note(events, ids, calls)
    return About(ref, found=ids, calls=calls)


def _note(events: Sequence[event_pb2.Event], ids: list[str], calls: list[str]) -> None:
    """Adds the ids that the events were given, and those of the calls that they answer."""
    for event in events:
        if event_id := event.id:
            ids.append(event_id)
        name = events_of.variant(event)
        call_id = events_of.result_of(event, name)
        if call_id is not None:
            calls.append(call_id)
        elif name == "user_tool_confirmation":
            calls.append(event.user_tool_confirmation.tool_use_id)
