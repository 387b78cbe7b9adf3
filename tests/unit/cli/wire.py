"""Events as the official client hands them out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from anthropic._models import construct_type
from anthropic.types.beta.sessions import BetaManagedAgentsStreamSessionEvents

if TYPE_CHECKING:
    from cli.follow import Event

NOW = "2026-11-29T12:00:00Z"
_numbers = itertools.count(1)


def event(kind: str, **fields: Any) -> Event:
    """An event of a type, stamped and with an id of its own unless `fields` say otherwise."""
    common = {"type": kind, "id": f"sevt_{next(_numbers):04}", "processed_at": NOW}
    made = construct_type(value=common | fields, type_=BetaManagedAgentsStreamSessionEvents)
    return cast("Event", made)


def text(*parts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": part} for part in parts]


def start(identity: str, kind: str = "agent.message") -> Event:
    return event("event_start", event={"type": kind, "id": identity}, id=None, processed_at=None)


def delta(identity: str, part: str, index: int = 0) -> Event:
    content = {"type": "text", "text": part}
    return event(
        "event_delta",
        event_id=identity,
        delta={"type": "content_delta", "index": index, "content": content},
        id=None,
        processed_at=None,
    )


def idle(reason: str = "end_turn", **fields: Any) -> Event:
    return event("session.status_idle", stop_reason={"type": reason, **fields})
