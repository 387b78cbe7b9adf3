"""Telling how far a long transfer is."""

from __future__ import annotations

import time
from typing import Final

from cli.terminal import Terminal

_EVERY: Final = 2.0  # s


class Progress:
    """Says on standard error every few seconds how many events are done; a short one says nothing.

    `verb` is in the past tense.
    """

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._done = 0
        self._told = time.monotonic()
        self._terminal = Terminal(stderr=True)
        self.total = 0

    def advance(self, events: int = 1) -> None:
        """Counts more events."""
        self._done += events
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            self._terminal.say(f"{self._verb} {self._done:,} of {self.total:,} events", "dim")
