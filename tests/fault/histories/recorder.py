"""Notes what writers do, as they do it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from chassis.errors import DroverError, Reason
from tests.fault.histories.history import History, Outcome, Write

# What says nothing about what became of an operation. All else is a refusal, and stores nothing.
_SILENT = frozenset({Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.CANCELLED})

# What an outage may be answered with. A lease can be lost to one, and a queue be full.
_FIT = _SILENT | {Reason.RESOURCE_EXHAUSTED, Reason.LEASE_LOST, Reason.LEASE_HELD}


@dataclass(slots=True)
class Operation:
    """One operation under way. It ends once, however often it is tried."""

    history: History
    writer: str
    session: str
    lane: str
    keys: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)
    doubtful: bool = False

    def acknowledged(self, placed: Mapping[str, int] | None = None) -> None:
        """It was carried out. `placed` are positions that were told."""
        self._end(Outcome.ACKNOWLEDGED, dict(placed or {}))

    def failed(self, error: DroverError) -> None:
        """An attempt failed, and none is to follow."""
        self.tried(error)
        self.given_up()

    def tried(self, error: DroverError) -> None:
        """An attempt failed, and another is to follow."""
        self.doubtful |= error.reason in _SILENT

    def given_up(self) -> None:
        """Nothing more will be tried."""
        self._end(Outcome.UNKNOWN if self.doubtful else Outcome.REFUSED, {})

    def _end(self, outcome: Outcome, placed: dict[str, int]) -> None:
        self.history.writes.append(
            Write(
                self.writer,
                self.session,
                self.lane,
                self.keys,
                outcome,
                self.began,
                time.monotonic(),
                placed,
            )
        )


@dataclass(slots=True)
class Recorder:
    """The history so far, and the answers that no outage excuses."""

    history: History = field(default_factory=History)
    unfit: list[str] = field(default_factory=list)

    def begin(self, writer: str, session: str, lane: str, keys: tuple[str, ...]) -> Operation:
        """Notes that an operation begins."""
        return Operation(self.history, writer, session, lane, keys)

    def heard(self, who: str, error: DroverError) -> None:
        """Notes an error that somebody was answered with."""
        if error.reason not in _FIT:
            self.unfit.append(f"{who}: {error!r} {error.__cause__!r}")
