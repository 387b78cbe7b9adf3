"""When old tool results and thinking are left out of what the model is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.brain.domain.state import trim
from services.brain.harness import window

if TYPE_CHECKING:
    from services.brain.domain.state import State


@dataclass(frozen=True, slots=True)
class ClearingPolicy:
    """Clears in steps that are large and rare: each one costs the cache of what comes behind it.

    A step is taken when the conversation has reached the share `begin` of the window, and only if
    it frees the share `least` of it. The newest `keep` results stay as they are, as do those that
    the model has not answered yet, and the thinking of the turn that is open: the model refuses a
    tool loop whose thoughts it cannot read again. Thinking of earlier turns goes along with the
    results, and never alone. What is cleared is in the log, and a note in its place says how to
    look there.

    A result that no window holds would end every turn from then on: where nothing else has helped,
    results that take more than the share `bulk` of the window become notes, answered or not.
    """

    begin: float = 0.5
    least: float = 0.1
    keep: int = 6
    bulk: float = 0.01

    def apply(self, state: State, size: int, of_window: int) -> bool:
        """Takes a step if one is due; whether it did. Sizes are in tokens."""
        if size < of_window * self.begin:
            return False
        if window.tokens(state, state.transcript.clearable(self.keep)) < of_window * self.least:
            return False
        state.transcript.clear(self.keep)
        trim(state)
        return True

    def relieve(self, state: State, of_window: int) -> bool:
        """Clears what is large, whatever it is; whether there was anything."""
        if not state.transcript.clear_bulk(window.weight(state, int(of_window * self.bulk))):
            return False
        trim(state)
        return True
