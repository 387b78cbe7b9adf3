"""How much of the model's window a conversation takes: counted by the model, else estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.brain.domain.state import State

BYTES_PER_TOKEN: Final = 3.5
"""What a token of JSON text stands for, on the small side, where nothing was counted yet."""


Windows = Callable[[str], int]
"""Tells the context window of a model, in tokens, by its id."""


_DENSEST, _LIGHTEST = 0.5, 8.0


def density(state: State) -> float:
    """Bytes per token in this conversation, as far as the model has counted it."""
    context = state.context
    if not context.tokens:
        return BYTES_PER_TOKEN
    counted = (len(state.prefix) + context.weight) / context.tokens
    return min(_LIGHTEST, max(_DENSEST, counted))


def tokens(state: State, weight: int) -> int:
    """About how many tokens of this conversation weigh so much (`Transcript.weight`)."""
    return int(weight / density(state))


def weight(state: State, tokens: int) -> int:
    """About what so many tokens of this conversation weigh."""
    return int(tokens * density(state))


def size(state: State) -> int:
    """Tokens of the next request: what the model counted last, and what has changed since."""
    context, now = state.context, state.transcript.weight
    if context.tokens:
        return max(0, context.tokens + tokens(state, now - context.weight))
    return tokens(state, len(state.prefix) + now)
