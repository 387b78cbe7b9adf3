"""What writers did, what readers saw, and the logs as they are in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """What a writer knows of its operation."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """An error that says nothing: the events may be there or not, but all or none, and once."""


@dataclass(frozen=True, slots=True)
class Write:
    """One operation: events that go into one log together.

    `keys` name the events by their content, whatever ids they got. `lane` is the class of events
    within which the log keeps the order of acknowledgements. `placed` are positions that the
    acknowledgement told. Times are the writer's own clock's, of the first attempt's start and of
    the answer.
    """

    writer: str
    session: str
    lane: str
    keys: tuple[str, ...]
    outcome: Outcome
    began: float
    ended: float
    placed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a log. `key` is empty for an event that no writer of the history wrote."""

    seq: int
    id: str
    key: str
    at: int
    """When it was stamped, in microseconds."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reader was shown of a log, from behind position `after` to its end, by event id."""

    reader: str
    session: str
    after: int
    seen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A log's beginning as somebody read it in the middle of things."""

    session: str
    ids: tuple[str, ...]


@dataclass(slots=True)
class History:
    """A whole run."""

    writes: list[Write] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    glimpses: list[Glimpse] = field(default_factory=list)
    logs: dict[str, tuple[Entry, ...]] = field(default_factory=dict)

    def count(self, outcome: Outcome) -> int:
        """How many operations ended so."""
        return sum(write.outcome is outcome for write in self.writes)
