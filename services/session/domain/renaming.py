"""Threads of a copied session have ids of their own: events that name one name the copy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.session.domain import event as events_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drover.event.v1 import event_pb2

_FIELDS: Final = frozenset({"session_thread_id", "to_session_thread_id", "from_session_thread_id"})
"""The fields of events that name a thread, beside the one that says whose the event is."""


def rename_threads(event: event_pb2.Event, renamed: Mapping[str, str]) -> None:
    """Has an event name threads by their new ids; those of other sessions keep theirs.

    What merely looks like an id, in a text or an input, is left as it is.
    """
    event.thread_id = renamed.get(event.thread_id, event.thread_id)
    name = events_of.variant(event)
    if not name:
        return
    payload = getattr(event, name)
    for field, value in payload.ListFields():
        if field.name in _FIELDS and value in renamed:
            setattr(payload, field.name, renamed[value])
