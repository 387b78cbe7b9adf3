"""Prefixed ids that sort by time: `sevt_01` and 22 base-58 characters."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

# In ASCII order, so that text sorts as the number does.
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_RANDOM_BITS = 80


IdSource = Callable[[str], str]
"""Makes a new id for a prefix; injected wherever tests need ids they can name."""


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
                value = self._last + 1 + secrets.randbits(32)
            self._last = value
        body = ""
        for _ in range(11):  # 22 digits hold 128 bits
            value, pair = divmod(value, len(_PAIRS))
            body = _PAIRS[pair] + body
        return f"{prefix}_01{body}"


new_id: IdSource = MonotonicIds()
"""The process's own source: `new_id("sevt")`."""
