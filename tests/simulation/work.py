"""Who writes: every time that a brain works on a session is told apart by the ids that it makes."""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tests.simulation.loop import Life


@dataclass(frozen=True, slots=True)
class Work:
    """One run of a brain's worker on one session."""

    life: Life
    session_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.life!r}/{self.number}"


_WORK: ContextVar[Work | None] = ContextVar("work", default=None)


def current_work() -> Work:
    work = _WORK.get()
    assert work is not None, "asked outside any work"
    return work


class Authors:
    """Makes ids, and remembers who asked for each."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._works = itertools.count(1)
        self.of: dict[str, Work] = {}

    def new_id(self, prefix: str) -> str:
        made = f"{prefix}_01{next(self._ids):022}"
        work = _WORK.get()
        if work is not None:
            self.of[made] = work
        return made

    def begin(self, life: Life, session_id: str) -> Any:
        """The running task works on a session from now on."""
        return _WORK.set(Work(life, session_id, next(self._works)))
