"""Events that are known by what they say, whatever id they get."""

from __future__ import annotations

from drover.event.v1 import event_pb2
from tests.doubles.session_events import message, said
from tests.fault.histories.history import Entry

MARK = "key:"


def posted(key: str, event_id: str = "", *, padding: str = "") -> event_pb2.Event:
    """A user's message."""
    event: event_pb2.Event = message(f"{MARK}{key} {padding}".rstrip(), event_id)
    return event


def spoken(key: str, event_id: str = "") -> event_pb2.Event:
    """An agent's message."""
    event: event_pb2.Event = said(MARK + key, event_id)
    return event


def key_of(event: event_pb2.Event) -> str:
    """What an event says, if it is one of these; empty for others."""
    for variant in ("user_message", "agent_message"):
        if event.HasField(variant):
            words: str = getattr(event, variant).content[0].text.text
            return words.removeprefix(MARK).partition(" ")[0] if words.startswith(MARK) else ""
    return ""


def entry(event: event_pb2.Event) -> Entry:
    """An event of a log."""
    return Entry(event.seq, event.id, key_of(event), event.processed_at.ToMicroseconds())
