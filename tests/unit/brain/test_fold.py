"""A fold that gives another state than before goes by another name, or old checkpoints are taken.

After a change of the fold: raise `harness.standard.FOLD` unless the state's classes have changed
with it, then run `python -m tests.replay.folds`.
"""

from __future__ import annotations

from tests.replay.folds import Fold


def test_golden_logs_are_folded_as_recorded_or_under_another_name() -> None:
    recorded, now = Fold.recorded(), Fold.now()
    assert not now.hides(recorded), "raise harness.standard.FOLD"
    assert now.differs(recorded) == [], "record it: python -m tests.replay.folds"


def test_another_state_under_the_same_name_is_noticed() -> None:
    before = Fold("schema.standard-1", {"a": "1", "b": "2"})
    assert Fold("schema.standard-1", {"a": "1", "b": "3"}).hides(before)
    assert not Fold("schema.standard-2", {"a": "1", "b": "3"}).hides(before)
    assert not Fold("schema.standard-1", {"a": "1", "b": "2", "c": "4"}).hides(before)
    assert Fold("schema.standard-2", {"a": "1", "b": "3", "c": "4"}).differs(before) == ["b", "c"]
