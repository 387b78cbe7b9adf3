"""The checker finds nothing in a good history, and each kind of damage in a bad one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.fault.histories.checker import Kind, check
from tests.fault.histories.history import Entry, Glimpse, History, Outcome, Reading, Write

S = "sesn_1"


def write(
    key: str, *more: str, at: float, outcome: Outcome = Outcome.ACKNOWLEDGED, **fields: object
) -> Write:
    values = {"writer": key[0], "session": S, "lane": "queued", "ended": at + 0.5} | fields
    return Write(keys=(key, *more), outcome=outcome, began=at, **values)  # type: ignore[arg-type]


def log_of(*keys: str) -> tuple[Entry, ...]:
    return tuple(Entry(n, f"id-{key}", key, n * 10) for n, key in enumerate(keys, start=1))


def good() -> History:
    """Two writers, one of whom does not know what became of a write; two readers, one late."""
    logged = log_of("a1", "b1", "b2", "a2", "a3")
    ids = tuple(entry.id for entry in logged)
    return History(
        writes=[
            write("a1", at=1),
            write("b1", "b2", at=2, placed={"b1": 2, "b2": 3}),
            write("a2", at=3, outcome=Outcome.UNKNOWN),
            write("a3", at=4),
            write("a4", at=5, outcome=Outcome.UNKNOWN),
            write("b5", at=6, outcome=Outcome.REFUSED),
        ],
        readings=[Reading("r1", S, 0, ids), Reading("r2", S, 2, ids[2:])],
        glimpses=[Glimpse(S, ids[:3])],
        logs={S: logged},
    )


def test_good_history_has_nothing_wrong() -> None:
    history = good()
    assert check(history) == []
    assert history.count(Outcome.ACKNOWLEDGED) == 3
    assert history.count(Outcome.UNKNOWN) == 2
    assert history.count(Outcome.REFUSED) == 1


def lost(history: History) -> None:
    history.logs[S] = log_of("a1", "b1", "b2", "a2")
    history.readings.clear()


def lost_with_its_whole_log(history: History) -> None:
    history.logs.clear()
    history.readings.clear()
    history.glimpses.clear()


def lost_in_part_of_an_acknowledged_write(history: History) -> None:
    history.logs[S] = log_of("a1", "b1", "a2", "a3")
    history.readings.clear()
    history.glimpses.clear()


def duplicated_under_another_id(history: History) -> None:
    history.logs[S] += (Entry(6, "id-x", "a1", 60),)
    history.readings.clear()


def duplicated_where_the_outcome_was_unknown(history: History) -> None:
    history.logs[S] += (Entry(6, "id-x", "a2", 60),)
    history.readings.clear()


def duplicated_id(history: History) -> None:
    history.logs[S] += (Entry(6, "id-a1", "", 60),)
    history.readings.clear()


def writers_own_order_lost(history: History) -> None:
    history.logs[S] = log_of("a3", "b1", "b2", "a2", "a1")
    history.readings.clear()
    history.glimpses.clear()


def order_between_writers_lost(history: History) -> None:
    history.logs[S] = log_of("b1", "b2", "a1", "a2", "a3")
    history.writes[1] = dataclasses.replace(history.writes[1], placed={})
    history.readings.clear()
    history.glimpses.clear()


def order_of_overlapping_writes_of_one_writer_lost(history: History) -> None:
    history.writes[0] = dataclasses.replace(history.writes[0], ended=9.0)
    writers_own_order_lost(history)


def order_within_a_write_lost(history: History) -> None:
    history.logs[S] = log_of("a1", "b2", "b1", "a2", "a3")
    history.writes[1] = dataclasses.replace(history.writes[1], placed={})
    history.readings.clear()
    history.glimpses.clear()


def moved_from_where_it_was_acknowledged(history: History) -> None:
    history.writes[1] = dataclasses.replace(history.writes[1], placed={"b1": 3})


def unknown_write_stored_in_part(history: History) -> None:
    history.writes.append(write("a1", "a9", at=9, outcome=Outcome.UNKNOWN))


def refused_write_stored(history: History) -> None:
    history.writes[3] = dataclasses.replace(history.writes[3], outcome=Outcome.REFUSED)


def gap(history: History) -> None:
    history.logs[S] = (*history.logs[S][:4], dataclasses.replace(history.logs[S][4], seq=6))


def one_position_twice(history: History) -> None:
    history.logs[S] = (*history.logs[S][:4], dataclasses.replace(history.logs[S][4], seq=4))


def beginning_cut_off(history: History) -> None:
    history.logs[S] = tuple(
        dataclasses.replace(entry, seq=entry.seq + 1) for entry in history.logs[S]
    )
    history.writes[1] = dataclasses.replace(history.writes[1], placed={})


def time_went_back(history: History) -> None:
    history.logs[S] = (*history.logs[S][:4], dataclasses.replace(history.logs[S][4], at=5))


def rewritten(history: History) -> None:
    history.glimpses.append(Glimpse(S, ("id-a1", "id-b2")))


def log_once_longer(history: History) -> None:
    ids = tuple(entry.id for entry in history.logs[S])
    history.glimpses.append(Glimpse(S, (*ids, "id-gone")))


def seen(history: History, change: Callable[[list[str]], None]) -> None:
    ids = list(history.readings[0].seen)
    change(ids)
    history.readings[0] = dataclasses.replace(history.readings[0], seen=tuple(ids))


def reader_repeat(history: History) -> None:
    seen(history, lambda ids: ids.insert(3, ids[2]))


def reader_repeat_far_behind(history: History) -> None:
    seen(history, lambda ids: ids.append(ids[0]))


def reader_skip(history: History) -> None:
    seen(history, lambda ids: ids.pop(2))


def reader_skip_at_the_end(history: History) -> None:
    seen(history, lambda ids: ids.pop())


def reader_skip_at_its_beginning(history: History) -> None:
    history.readings[1] = dataclasses.replace(history.readings[1], after=1)


def reader_order(history: History) -> None:
    seen(history, lambda ids: ids.insert(0, ids.pop(1)))


def reader_invented(history: History) -> None:
    seen(history, lambda ids: ids.append("id-never"))


DAMAGE = [
    (lost, Kind.LOST),
    (lost_with_its_whole_log, Kind.LOST),
    (lost_in_part_of_an_acknowledged_write, Kind.LOST),
    (duplicated_under_another_id, Kind.DUPLICATED),
    (duplicated_where_the_outcome_was_unknown, Kind.DUPLICATED),
    (duplicated_id, Kind.DUPLICATED),
    (writers_own_order_lost, Kind.REORDERED),
    (order_between_writers_lost, Kind.REORDERED),
    (order_of_overlapping_writes_of_one_writer_lost, Kind.REORDERED),
    (order_within_a_write_lost, Kind.REORDERED),
    (moved_from_where_it_was_acknowledged, Kind.MOVED),
    (unknown_write_stored_in_part, Kind.PARTIAL),
    (refused_write_stored, Kind.REFUSED_AND_STORED),
    (gap, Kind.GAP),
    (one_position_twice, Kind.GAP),
    (beginning_cut_off, Kind.GAP),
    (time_went_back, Kind.TIME_WENT_BACK),
    (rewritten, Kind.REWRITTEN),
    (log_once_longer, Kind.REWRITTEN),
    (reader_repeat, Kind.READER_REPEAT),
    (reader_repeat_far_behind, Kind.READER_REPEAT),
    (reader_skip, Kind.READER_SKIP),
    (reader_skip_at_the_end, Kind.READER_SKIP),
    (reader_skip_at_its_beginning, Kind.READER_SKIP),
    (reader_order, Kind.READER_ORDER),
    (reader_invented, Kind.READER_INVENTED),
]


@pytest.mark.parametrize(("damage", "kind"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE])
def test_checker_finds(damage: Callable[[History], None], kind: Kind) -> None:
    history = good()
    damage(history)
    assert kind in {violation.kind for violation in check(history)}


def test_every_kind_of_violation_has_a_history_that_shows_it() -> None:
    assert {kind for _, kind in DAMAGE} == set(Kind)


def test_writes_that_overlap_in_time_may_lie_in_either_order() -> None:
    history = History(
        writes=[write("a1", at=1, ended=3.0), write("b1", at=2, ended=4.0)],
        logs={S: log_of("b1", "a1")},
    )
    assert check(history) == []


def test_classes_of_events_are_ordered_each_for_itself() -> None:
    history = History(
        writes=[write("a1", at=1), write("b1", at=2, lane="interrupts")],
        logs={S: log_of("b1", "a1")},
    )
    assert check(history) == []
