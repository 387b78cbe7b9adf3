"""A secret as a type: it shows as `***` and leaves the process only where `open` is called."""

from __future__ import annotations

import hmac
from typing import Never


class Secret:
    """Text that must not be printed, logged, pickled or serialised by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def open(self) -> str:
        """The plain text. Every call site is a place to review."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Whether `candidate` is this secret, in time independent of where they differ."""
        return hmac.compare_digest(self._value.encode(), candidate.encode())

    def __repr__(self) -> str:
        return "***"

    def __reduce_ex__(self, protocol: object) -> Never:
        msg = "a Secret cannot be pickled or copied"
        raise TypeError(msg)
