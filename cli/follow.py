"""A session's events, each once, over any number of broken connections (EVENTS §8)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anthropic
import httpx2
from anthropic.types.beta import BetaManagedAgentsDeltaEvent, BetaManagedAgentsStartEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from anthropic import Anthropic
    from anthropic.types.beta.sessions import (
        BetaManagedAgentsSessionEvent,
        BetaManagedAgentsStreamSessionEvents,
    )

    Event = BetaManagedAgentsSessionEvent | BetaManagedAgentsStreamSessionEvents

_LAST = ("session.status_terminated", "session.deleted")
_PAUSE = 0.25  # s between attempts to connect
_PAGE = 1000


class ConnectionLostError(Exception):
    """The stack could not be reached for as long as we were willing to wait."""


class Follower:
    """Reads a session's events as they happen, what happened before included.

    Every connection opens the stream first and lists the history after, so that nothing falls
    between them. An event that was accepted but not yet processed comes twice with one id: without
    and with its time. `patience` is how long an unreachable stack is waited for, in seconds.
    """

    def __init__(self, client: Anthropic, session_id: str, *, patience: float = 30.0) -> None:
        self._events = client.beta.sessions.events
        self._session_id = session_id
        self._patience = patience
        self._seen: dict[str, bool] = {}

    def history(self) -> Iterator[Event]:
        """What is in the log and in the inbox now."""
        yield from filter(self._is_new, self._events.list(self._session_id, limit=_PAGE))

    def follow(self, opened: Callable[[], None] = lambda: None) -> Iterator[Event]:
        """History, then what comes; ends with the session.

        `opened` is called once, as soon as nothing that happens can be missed. Raises
        `ConnectionLostError`, and `anthropic.APIStatusError` if the session cannot be read.
        """
        reached = time.monotonic()
        announced = False
        while True:
            try:
                with self._events.stream(
                    self._session_id, event_deltas=["agent.message", "agent.thinking"]
                ) as stream:
                    if not announced:
                        opened()
                        announced = True
                    for event in self._merged(stream):
                        reached = time.monotonic()
                        yield event
                        if event.type in _LAST:
                            return
            except anthropic.APIStatusError as error:
                if error.status_code < 500:  # noqa: PLR2004
                    raise
            except (anthropic.APIConnectionError, httpx2.TransportError):
                pass
            if time.monotonic() - reached > self._patience:
                msg = f"no connection for {self._patience:.0f} s"
                raise ConnectionLostError(msg)
            time.sleep(_PAUSE)

    def _merged(self, stream: Iterable[Event]) -> Iterator[Event]:
        yield from self.history()
        yield from filter(self._is_new, stream)

    def _is_new(self, event: Event) -> bool:
        """Whether this is the first sight of the event, or of its being processed."""
        if isinstance(event, BetaManagedAgentsStartEvent | BetaManagedAgentsDeltaEvent):
            return True
        processed = getattr(event, "processed_at", None) is not None
        if self._seen.get(event.id, False) or (event.id in self._seen and not processed):
            return False
        self._seen[event.id] = processed
        return True
