"""How much of the model's window a conversation takes: counted by the model, else estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.brain.domain.state import State

BYTES_PER_TOKEN: Final = 3.5
"""What a token of JSON text stands for, on the small side."""


Windows = Callable[[str], int]
"""Tells the context window of a model, in tokens, by its id."""


def tokens(weight: int) -> int:
    """About how many tokens a `Transcript.weight` is."""
    return int(weight / BYTES_PER_TOKEN)


def weight(of_tokens: int) -> int:
    """About what so many tokens weigh."""
    return int(of_tokens * BYTES_PER_TOKEN)


def size(state: State) -> int:
    """Tokens of the next request: what the model counted last, and what has changed since."""
    context, now = state.context, state.transcript.weight
    if context.tokens:
        return max(0, context.tokens + tokens(now - context.weight))
    return tokens(len(state.prefix) + now)
