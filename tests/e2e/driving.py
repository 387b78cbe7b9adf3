"""What most end-to-end tests do first: an agent, an environment, a session, a turn."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from anthropic import Anthropic

TOOLSET: dict[str, Any] = {"type": "agent_toolset_20260401"}
MODEL = "claude-opus-5-5"


def user_message(text: str) -> dict[str, Any]:
    """A `user.message` with one text block."""
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def new_session(
    client: Anthropic,
    *,
    tools: Iterable[Any] = (TOOLSET,),
    self_hosted: bool = False,
    **more: Any,
) -> Any:
    """Creates an agent, an environment and a session of its own for one test."""
    agent = client.beta.agents.create(name="clerk", model=MODEL, tools=list(tools))
    config: Any = {"config": {"type": "self_hosted"}} if self_hosted else {}
    environment = client.beta.environments.create(name=f"desk-{uuid.uuid4().hex}", **config)
    return client.beta.sessions.create(agent=agent.id, environment_id=environment.id, **more)


def send(client: Anthropic, session_id: str, *texts: str) -> list[Any]:
    """Sends user messages in one request; answers the echoes."""
    sent = client.beta.sessions.events.send(
        session_id, events=[user_message(text) for text in texts]
    )
    return list(sent.data or [])


def run_turn(client: Anthropic, session_id: str, *texts: str) -> list[Any]:
    """Sends messages and reads the stream up to the idle event; answers what the stream gave."""
    seen = []
    with client.beta.sessions.events.stream(session_id) as stream:
        send(client, session_id, *texts)
        for event in stream:
            seen.append(event)
            if event.type == "session.status_idle":
                break
    return seen


def history(client: Anthropic, session_id: str, **query: Any) -> list[Any]:
    """The whole log, page by page."""
    return list(client.beta.sessions.events.list(session_id, **query))


def stamped(events: Iterable[Any]) -> list[Any]:
    """Events of the log only: without previews and unstamped echoes."""
    return [event for event in events if getattr(event, "processed_at", None) is not None]


def texts(events: Iterable[Any], kind: str) -> list[str]:
    """The text of all events of one type."""
    return [
        "".join(block.text for block in event.content if block.type == "text")
        for event in events
        if event.type == kind
    ]
