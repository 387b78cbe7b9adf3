"""What the service's transactions will look at, told ahead: see `ports.About`."""

from __future__ import annotations

import dataclasses
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
    announced = emitting(ref, [event for request in requests for event in request.events])
    takes = any(request.take for request in requests)
    return dataclasses.replace(announced, waiting=True) if takes else announced


def emitting(ref: SessionRef, events: Sequence[event_pb2.Event]) -> About:
    """About `append.emit`."""
    logged = [event.id for event in events if event.id]
    return About(ref, logged=logged, calls=_answered(events))


def accepting(ref: SessionRef, events: Sequence[event_pb2.Event]) -> About:
    """About `accept.accept`."""
    return About(ref, found=[event.id for event in events if event.id], calls=_answered(events))


def _answered(events: Sequence[event_pb2.Event]) -> list[str]:
    answered = []
    for event in events:
        name = events_of.variant(event)
        call_id = events_of.result_of(event, name)
        if call_id is None and name == "user_tool_confirmation":
            call_id = event.user_tool_confirmation.tool_use_id
        if call_id is not None:
            answered.append(call_id)
    return answered
