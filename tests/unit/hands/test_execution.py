from __future__ import annotations

from datetime import timedelta

import pytest

from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_OUTCOME_UNKNOWN,
)
from services.hands.domain import execution
from services.hands.domain.execution import Record, Step, begin


def test_call_never_seen_runs() -> None:
    begun = begin(None, "bash", 4)
    assert begun.step is Step.RUN
    assert begun.record == Record("bash", 4, starts=1)


def test_call_with_a_result_is_answered_with_it() -> None:
    result = execution.ran((), timedelta(0), is_error=False, cancelled=False)
    found = Record("bash", 1, starts=1, result=result)
    begun = begin(found, "bash", 9)
    assert begun.step is Step.ANSWER
    assert begun.replayed
    assert begun.record is found


@pytest.mark.parametrize("tool", ["bash", "write", "edit"])
def test_call_whose_end_was_not_seen_is_never_run_again(tool: str) -> None:
    begun = begin(Record(tool, 1, starts=1), tool, 2)
    assert begun.step is Step.ANSWER
    assert not begun.replayed
    assert begun.record.result is not None
    assert begun.record.result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert begun.record.result.is_error
    assert "unknown" in begun.record.result.content[0].text.text


@pytest.mark.parametrize("tool", ["read", "glob", "grep"])
def test_reading_whose_end_was_not_seen_runs_once_more_and_no_more(tool: str) -> None:
    again = begin(Record(tool, 1, starts=1), tool, 2)
    assert again.step is Step.RUN
    assert again.record.starts == 2
    third = begin(again.record, tool, 3)
    assert third.step is Step.ANSWER
    assert third.record.result is not None
    assert third.record.result.verdict == VERDICT_OUTCOME_UNKNOWN


def test_what_decides_is_the_recorded_tool_not_the_one_that_is_asked_for_now() -> None:
    assert begin(Record("bash", 1, starts=1), "read", 2).step is Step.ANSWER


def test_tool_that_was_stopped_is_cancelled_and_not_completed() -> None:
    stopped = execution.ran((), timedelta(seconds=2), is_error=True, cancelled=True)
    assert stopped.verdict == VERDICT_CANCELLED
    assert stopped.duration.ToTimedelta() == timedelta(seconds=2)
    ended = execution.ran((), timedelta(0), is_error=True, cancelled=False)
    assert ended.verdict == VERDICT_COMPLETED
