"""Prefixed ids that sort by time: `sevt_01` and 22 base-58 characters."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Protocol

# In ASCII order, so that text sorts as the number does.
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_DIGIT_PAIRS = 11
_RANDOM_BITS = 80
_STEP_BITS = 32


class IdSource(Protocol):
    """Makes a new id for a prefix; injected wherever tests need ids they can name."""

    def __call__(self, prefix: str, /) -> str:
        """A new id that starts with `prefix` and an underscore."""
        ...


class MonotonicIds:
    """48 bits of Unix milliseconds and 80 random bits, strictly increasing within the process.

    Safe to call from any thread. Within one millisecond, or when the wall clock steps back, the
    next id is the last one plus a random step.
    """

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, prefix: str, /) -> str:
        """A new id, greater than every earlier one with the same prefix."""
        with self._lock:
            value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
            if value >> _RANDOM_BITS <= self._last >> _RANDOM_BITS:
                value = self._last + 1 + secrets.randbits(_STEP_BITS)
            self._last = value
        pairs = [""] * _DIGIT_PAIRS
        for position in range(_DIGIT_PAIRS - 1, -1, -1):
            value, pair = divmod(value, len(_PAIRS))
            pairs[position] = _PAIRS[pair]
        return f"{prefix}_01{''.join(pairs)}"


new_id: IdSource = MonotonicIds()
"""The process's own source: `new_id("sevt")`."""
