"""The plug: a harness is project, decide and context policy over one and the same log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from catalogue.models import Catalogue
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.decision import Decision, Limits, Mine
    from services.brain.domain.state import State
    from services.brain.harness.clearing import ClearingPolicy
    from services.brain.harness.compaction import CompactionPolicy


@dataclass(frozen=True, slots=True)
class Setup:
    """What a harness is made with: what is known of models, and the operator's limits.

    `max_output_tokens` bounds one reply of a model that can write as many. `clearing` and
    `compaction` are for harnesses that make room in the model's window; None means their defaults.
    """

    models: Catalogue
    max_output_tokens: int
    limits: Limits
    clearing: ClearingPolicy | None = None
    compaction: CompactionPolicy | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request of the Messages API, ready to send.

    `body` is its JSON with `"stream": true`, `betas` the values of its beta header. Images and
    documents in it may be references to files (`domain/media.py`): whoever sends it puts them in.
    """

    model: str
    body: bytes
    betas: tuple[str, ...] = ()


class Harness(Protocol):
    """Decides what a session does next and what its model is shown.

    Pure but for the state that it folds into: the same log gives the same decision and the same
    bytes, whichever brain asks. A new harness may run beside an old one on the same logs.
    """

    @property
    def name(self) -> str:
        """What an agent's metadata calls it."""
        ...

    @property
    def fold(self) -> str:
        """Names the way in which it folds, with the settings that it depends on.

        Another one as soon as `begin` or `project` make another state of the same log: states that
        were kept under the old name are not taken up any more.
        """
        ...

    def begin(self, session: Session) -> State:
        """The state of `session` before its log is folded."""
        ...

    def project(self, state: State, event: Event, at: float) -> None:
        """Folds the next event into `state`; `at` is Unix time, for events without a stamp."""
        ...

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """The next step."""
        ...

    def request(self, state: State) -> ModelRequest:
        """What the model is sent when the next step is to call it."""
        ...
