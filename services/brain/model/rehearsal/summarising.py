"""The rehearsal model asked for a summary: it lists what the user has asked for, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from services.brain.harness.compaction import HEADING, PROMPT
from services.brain.model.rehearsal.script import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST: Final = 20
_LONGEST: Final = 300


def is_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for a summary of its conversation."""
    return any(text == PROMPT for text in _said(body, newest=2))


def summary(body: Mapping[str, Any]) -> Answer:
    """The answer to such a request."""
    asked = [text for text in _said(body) if text != PROMPT]
    lines = [f"- {text.removeprefix(HEADING)[:_LONGEST]}" for text in asked[-_MOST:]]
    return Answer(
        "This is the rehearsal model's summary: what the user has said, shortened.\n"
        + "\n".join(lines)
    )


def _said(body: Mapping[str, Any], newest: int | None = None) -> Iterator[str]:
    messages = body.get("messages")
    for message in (messages if isinstance(messages, list) else [])[-newest if newest else None :]:
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "text":
                yield str(block.get("text", ""))
