"""Projected states of sessions that this brain had lately, so that the next turn folds little."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.brain.loop.checkpoints import NOTHING, Mark

if TYPE_CHECKING:
    from services.brain.domain.state import State


@dataclass(frozen=True, slots=True)
class CachedState:
    """A state, the harness that folded it, and how far the session's last checkpoint goes."""

    harness: str
    state: State
    checkpoint: Mark = NOTHING

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        state = self.state
        results = sum(len(call.result.block) for call in state.calls.values() if call.result)
        said = sum(len(text) for _, text in state.words)
        return len(state.transcript) + len(state.prefix) + results + said + 4096


class StateCache:
    """The most recently used states, bounded in number and in bytes. Never more than a shortcut."""

    def __init__(self, *, entries: int = 1000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._states: OrderedDict[str, CachedState] = OrderedDict()

    def take(self, session_id: str) -> CachedState | None:
        """Hands a state over: whoever works with it puts it back once it is sure to be right."""
        cached = self._states.pop(session_id, None)
        if cached is not None:
            self._bytes -= cached.size
        return cached

    def put(self, cached: CachedState) -> None:
        """Keeps a state, and lets go of the ones that were used least recently."""
        self.take(cached.state.session_id)
        self._states[cached.state.session_id] = cached
        self._bytes += cached.size
        while self._states and (len(self._states) > self._entries or self._bytes > self._max_bytes):
            _, oldest = self._states.popitem(last=False)
            self._bytes -= oldest.size
