"""Judges a history: every promise about the log that can be told from outside (P1, P5).

Pure, and quick enough for millions of events: each rule goes through the history once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tests.fault.histories.history import Entry, Glimpse, History, Outcome, Reading, Write


class Kind(Enum):
    """What can be wrong."""

    LOST = "an acknowledged event is not in the log"
    DUPLICATED = "an event is in the log more than once"
    REORDERED = "events are not in the order in which they were acknowledged"
    MOVED = "an event is not at the position that its acknowledgement told"
    PARTIAL = "some events of an operation are in the log and some are not"
    REFUSED_AND_STORED = "an event of a refused operation is in the log"
    GAP = "the log's positions are not 1, 2, 3, …"
    TIME_WENT_BACK = "an event was stamped before the one in front of it"
    REWRITTEN = "the log once began otherwise"
    READER_REPEAT = "a reader was shown an event twice"
    READER_SKIP = "a reader was not shown an event"
    READER_ORDER = "a reader was shown events in another order than the log's"
    READER_INVENTED = "a reader was shown an event that the log does not have"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise. `what` says where."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a history."""
    found: list[Violation] = []
    by_session: dict[str, list[Write]] = defaultdict(list)
    for write in history.writes:
        by_session[write.session].append(write)
    for session in sorted(by_session.keys() | history.logs.keys()):
        log = history.logs.get(session, ())
        writes = by_session.get(session, [])
        found += _log_itself(session, log)
        found += _presence(log, writes)
        found += _order(session, log, writes)
    for reading in history.readings:
        found += _reading(reading, history.logs.get(reading.session, ()))
    for glimpse in history.glimpses:
        found += _glimpse(glimpse, history.logs.get(glimpse.session, ()))
    return found


def _log_itself(session: str, log: Sequence[Entry]) -> Iterator[Violation]:
    for position, entry in enumerate(log, start=1):
        if entry.seq != position:
            yield Violation(Kind.GAP, f"{session}: {entry.seq} is where {position} should be")
            break
    for before, after in pairwise(log):
        if after.at < before.at:
            yield Violation(Kind.TIME_WENT_BACK, f"{session}: at {after.seq}")
    for entry_id, times in Counter(entry.id for entry in log).items():
        if times > 1:
            yield Violation(Kind.DUPLICATED, f"{session}: {entry_id} is there {times} times")
    for key, times in Counter(entry.key for entry in log if entry.key).items():
        if times > 1:
            yield Violation(Kind.DUPLICATED, f"{session}: {key} is there {times} times")


def _presence(log: Sequence[Entry], writes: Sequence[Write]) -> Iterator[Violation]:
    at = {entry.key: entry.seq for entry in log}
    for write in writes:
        missing = [key for key in write.keys if key not in at]
        there = len(write.keys) - len(missing)
        if write.outcome is Outcome.ACKNOWLEDGED:
            for key in missing:
                yield Violation(Kind.LOST, f"{write.session}: {key} of {write.writer}")
        elif write.outcome is Outcome.REFUSED:
            if there:
                yield Violation(Kind.REFUSED_AND_STORED, f"{write.session}: {write.keys}")
        elif there and missing:
            yield Violation(Kind.PARTIAL, f"{write.session}: {missing} of {write.keys}")
        for key, seq in write.placed.items():
            if at.get(key, seq) != seq:
                yield Violation(
                    Kind.MOVED, f"{write.session}: {key} is at {at[key]}, told was {seq}"
                )


def _order(session: str, log: Sequence[Entry], writes: Sequence[Write]) -> Iterator[Violation]:
    """Within an operation, within a writer, and between writers as far as time tells.

    An operation whose outcome is unknown may have been carried out late.
    """
    seqs = {entry.key: entry.seq for entry in log}
    lanes: dict[str, list[_Placed]] = defaultdict(list)
    writers: dict[tuple[str, str], list[_Placed]] = defaultdict(list)
    for write in writes:
        there = [seqs[key] for key in write.keys if key in seqs]
        if there != sorted(there):
            yield Violation(Kind.REORDERED, f"{session}: within {write.keys}")
        if there and write.outcome is Outcome.ACKNOWLEDGED:
            lanes[write.lane].append((there[0], write))
            writers[write.writer, write.lane].append((there[0], write))
    for own in writers.values():
        yield from _order_of_writer(own)
    for lane in lanes.values():
        yield from _order_in_time(lane)


_Placed = tuple[int, Write]


def _order_of_writer(own: list[_Placed]) -> Iterator[Violation]:
    """A writer's operations lie as they were begun, be it one on top of the other."""
    own.sort(key=lambda placed: placed[1].began)
    for (first, before), (second, after) in pairwise(own):
        if second < first:
            yield Violation(
                Kind.REORDERED,
                f"{after.session}: {after.keys} lies before {before.keys} of the same writer",
            )


def _order_in_time(lane: list[_Placed]) -> Iterator[Violation]:
    """What was acknowledged before another write began lies before it."""
    lane.sort(key=lambda placed: placed[0])
    latest: Write | None = None
    for _, write in lane:
        if latest is not None and write.ended < latest.began:
            yield Violation(
                Kind.REORDERED,
                f"{write.session}: {write.keys} of {write.writer} was acknowledged before "
                f"{latest.keys} of {latest.writer} was sent, and lies behind it",
            )
        if latest is None or write.began > latest.began:
            latest = write


def _reading(reading: Reading, log: Sequence[Entry]) -> Iterator[Violation]:
    where = f"{reading.reader} of {reading.session}"
    due = {entry.id: entry.seq for entry in log if entry.seq > reading.after}
    times = Counter(reading.seen)
    for entry_id, count in times.items():
        if count > 1:
            yield Violation(Kind.READER_REPEAT, f"{where}: {entry_id} {count} times")
        if entry_id not in due:
            yield Violation(Kind.READER_INVENTED, f"{where}: {entry_id}")
    for entry_id, seq in due.items():
        if entry_id not in times:
            yield Violation(Kind.READER_SKIP, f"{where}: {entry_id} at {seq}")
    shown = [due[entry_id] for entry_id in dict.fromkeys(reading.seen) if entry_id in due]
    for before, after in pairwise(shown):
        if after < before:
            yield Violation(Kind.READER_ORDER, f"{where}: {after} behind {before}")


def _glimpse(glimpse: Glimpse, log: Sequence[Entry]) -> Iterator[Violation]:
    if tuple(entry.id for entry in log[: len(glimpse.ids)]) != glimpse.ids:
        yield Violation(Kind.REWRITTEN, f"{glimpse.session}: its first {len(glimpse.ids)} events")
