"""Harnesses of the operator's own can fail. Whatever they raise names them, and nothing else.

What they give is looked at, too: with a decision that is none, a brain would go round for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from services.brain.domain.decision import Decision
from services.brain.domain.state import State
from services.brain.harness.port import ModelRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.decision import Mine
    from services.brain.harness.port import Harness

_T = TypeVar("_T")


class HarnessFailedError(Exception):
    """A harness raised, or gave what it must not. The text holds nothing of the session's."""

    def __init__(self, harness: str, member: str, why: str) -> None:
        super().__init__(f"The harness {harness!r} failed in {member!r}: {why}.")
        self.harness = harness


class GuardedHarness:
    """`harness`, except that all that it raises is `HarnessFailedError`."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    @property
    def name(self) -> str:
        """See `Harness.name`."""
        return self._harness.name

    @property
    def fold(self) -> str:
        """See `Harness.fold`."""
        return self._harness.fold

    def begin(self, session: Session) -> State:
        """See `Harness.begin`."""
        state = self._guarded("begin", lambda: self._harness.begin(session))
        return self._checked("begin", state, fits=isinstance(state, State))

    def project(self, state: State, event: Event, at: float) -> None:
        """See `Harness.project`."""
        self._guarded("project", lambda: self._harness.project(state, event, at))

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """See `Harness.decide`."""
        decision = self._guarded("decide", lambda: self._harness.decide(state, waiting, mine))
        return self._checked("decide", decision, fits=isinstance(decision, Decision))

    def request(self, state: State) -> ModelRequest:
        """See `Harness.request`."""
        request = self._guarded("request", lambda: self._harness.request(state))
        return self._checked("request", request, fits=isinstance(request, ModelRequest))

    def _guarded(self, member: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except Exception as error:
            raise HarnessFailedError(self.name, member, type(error).__name__) from error

    def _checked(self, member: str, value: _T, *, fits: bool) -> _T:
        if not fits:
            raise HarnessFailedError(self.name, member, f"it gave {type(value).__name__}")
        return value
