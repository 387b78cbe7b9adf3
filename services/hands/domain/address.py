"""Where a hand is found: its session's id, and its name in that session.

The session's own hand has no name, and its address is the session's id, which holds no `@`.
"""

from __future__ import annotations

from typing import Final

_BETWEEN: Final = "@"


def address(session_id: str, hand: str = "") -> str:
    """The address of a session's hand. It is a file name, too."""
    return f"{session_id}{_BETWEEN}{hand}" if hand else session_id


def split(where: str) -> tuple[str, str]:
    """The session's id and the hand's name at an address."""
    session_id, _, hand = where.partition(_BETWEEN)
    return session_id, hand


def session_of(where: str) -> str:
    """The session's id at an address."""
    return split(where)[0]


def is_of(where: str, session_id: str, hand: str | None) -> bool:
    """Whether an address is that of a session's hand, or of any that it has."""
    return split(where) == (session_id, hand) or (hand is None and session_of(where) == session_id)


def shown(hand: str) -> str:
    """How a message names a hand."""
    return f"the hand {hand}" if hand else "the session's own hand"
