"""What is known of one model.

Money is exact: prices are whole micro-dollars per million tokens, so that a count of tokens times
a price is a whole number of pico-dollars.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Price:
    """List prices of one model at one speed, in micro-dollars per million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write_5m: int
    cache_write_1h: int


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """The prices of requests whose prompt, cached parts included, has over `above` tokens."""

    above: int
    price: Price


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of one model. One that is not `known` has cautious values and no price.

    `price` is None where there is no list price, `fast_price` where the model has no fast mode or
    none with a list price. `efforts` are the levels that `effort` may name, none where the model
    takes no effort at all.
    """

    id: str
    display_name: str
    context_window: int = 200_000
    max_output_tokens: int = 32_000
    price: Price | None = None
    fast_price: Price | None = None
    long_prompt: LongPrompt | None = None
    adaptive_thinking: bool = False
    efforts: tuple[str, ...] = ()
    mid_conversation_system: bool = False
    known: bool = False


@dataclass(frozen=True, slots=True)
class SessionRates:
    """What a session costs beside its tokens, in micro-dollars."""

    running_hour: int
    thousand_searches: int
