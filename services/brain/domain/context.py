"""What is known of how full the model's window is, and what was done to make room in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OVERFLOW: Final = "model_context_window_exceeded"
"""The stop reason of a request whose conversation did not fit (also of ours, for a refused one)."""

WITHHELD: Final = "content_refused"
"""Our stop reason of a request that was refused for what it newly showed: that is left out now."""

HISTORY_TOOL: Final = "session_history"
"""The built-in tool that reads the session's own log."""

HISTORY_KEY: Final = "drover.session_history"
"""Key of an agent's metadata that offers the tool from the start, with the value `on`."""


@dataclass(slots=True)
class Context:
    """The window, as far as the log tells of it. Sizes are in tokens, weights in bytes."""

    # What the model was last sent, in its own count, and what the transcript weighed then.
    tokens: int = 0
    weight: int = 0
    # The next request has to summarise, and the open one does.
    due: bool = False
    compacting: bool = False
    # What the request has said that summarises; it counts once that request has ended.
    summary: str | None = None
    # The first message is a summary.
    summarised: bool = False
    # Something that the model was shown once stands in the log alone.
    trimmed: bool = False
    # Overflows and compactions in a row, without an answer that left room in the window.
    cramped: int = 0

    def overflow(self) -> None:
        """The conversation did not fit."""
        self.due = True
        self.cramped += 1

    def told(self, tokens: int, weight: int) -> None:
        """The model has counted what it was sent."""
        if tokens > 0:
            self.tokens, self.weight = tokens, weight

    def forget(self) -> None:
        """The conversation is another one now: nothing is known of its size."""
        self.tokens = self.weight = 0
