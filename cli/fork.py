"""`drover fork`: a new session from a session's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from anthropic import Anthropic

_BETA: Final = "managed-agents-2026-04-01"


def fork_session(client: Anthropic, session_id: str, event_id: str | None) -> str:
    """Forks a session at an event, the last one if none is named; answers the new session's id."""
    session: Any = client.post(
        f"/v1/sessions/{quote(session_id, safe='')}/fork",
        cast_to=object,
        body={} if event_id is None else {"event_id": event_id},
        options={"headers": {"anthropic-beta": _BETA}},
    )
    return str(session["id"])
