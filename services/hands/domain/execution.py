"""What is known of one tool call: the journal's record and the answers made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    ExecuteResponse,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from drover.event.v1.content_pb2 import ContentBlock

READ_ONLY: Final = frozenset({"read", "glob", "grep", "web_fetch", "web_search"})
"""Tools that change nothing: they may run a second time when the first one's answer is lost."""
MAX_STARTS: Final = 2

_UNKNOWN = (
    "The sandbox died while this tool ran, so whether and how far it took effect is unknown. It "
    "was not run again. Files in /workspace and /mnt/session are kept; the shell's state and /tmp "
    "are lost. The next call gets a new sandbox."
)
SHELL_LOST: Final = (
    "[the shell was started afresh after a command was stopped: the working directory, variables "
    "and background jobs of earlier commands are lost]"
)
SANDBOX_LOST: Final = (
    "[the shell was started afresh, in a new sandbox: the working directory, variables, background "
    "jobs and /tmp of earlier commands are lost; /workspace and /mnt/session are kept]"
)
_CANCELLED = "The call was cancelled before it ran."
_ABANDONED = "The call was cancelled while it ran, and its sandbox was ended."


class Step(Enum):
    """What to do with a call, once the journal has been asked."""

    RUN = "run"
    """Nothing has run, or what ran may run again: the start is recorded."""
    ANSWER = "answer"
    """A result is recorded."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the journal. `result` is None while the call runs, or if its end was not seen."""

    tool: str
    generation: int
    starts: int
    result: ExecuteResponse | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The journal's answer to a call that wants to start.

    `replayed`: the result had been recorded before.
    """

    step: Step
    record: Record
    replayed: bool = False


def begin(found: Record | None, tool: str, generation: int) -> Begun:
    """What to do with a call of which the journal has `found`, and the record to keep.

    Asked only for calls that this process is not running: a record without a result was left by a
    process that died, or by a sandbox that died with it. Such a call is never run again unless it
    only reads, and that once.
    """
    if found is None:
        return Begun(Step.RUN, Record(tool, generation, starts=1))
    if found.result is not None:
        return Begun(Step.ANSWER, found, replayed=True)
    if may_restart(found.tool, found.starts):
        return Begun(Step.RUN, Record(found.tool, generation, found.starts + 1))
    record = Record(found.tool, found.generation, found.starts, outcome_unknown())
    return Begun(Step.ANSWER, record)


def may_restart(tool: str, starts: int) -> bool:
    """Whether a call whose end was not seen may start once more."""
    return tool in READ_ONLY and starts < MAX_STARTS


def ran(
    content: Iterable[ContentBlock], duration: timedelta, *, is_error: bool, cancelled: bool
) -> ExecuteResponse:
    """The result of a tool that ran, to its end or until it was cancelled."""
    verdict = VERDICT_CANCELLED if cancelled else VERDICT_COMPLETED
    response = ExecuteResponse(content=content, is_error=is_error, verdict=verdict)
    response.duration.FromTimedelta(duration)
    return response


def noted(response: ExecuteResponse, note: str) -> ExecuteResponse:
    """`response` with a line for the model at its end."""
    if note:
        last = response.content[-1] if response.content else response.content.add()
        if last.WhichOneof("block") not in {"text", None}:
            last = response.content.add()
        last.text.text = f"{last.text.text}\n{note}".lstrip("\n")
    return response


def outcome_unknown(why: str = "") -> ExecuteResponse:
    """The result of a call that was running when its sandbox died."""
    return unknown(f"{_UNKNOWN} Reason: {why}." if why else _UNKNOWN)


def unknown(text: str) -> ExecuteResponse:
    """The result of a call of which nobody can say what it did."""
    return _error(text, VERDICT_OUTCOME_UNKNOWN)


def cancelled() -> ExecuteResponse:
    """The result of a call that was cancelled before anything of it ran."""
    return _error(_CANCELLED, VERDICT_CANCELLED)


def abandoned(text: str = _ABANDONED) -> ExecuteResponse:
    """The result of a call that was cancelled while it ran; `text` says with what."""
    return _error(text, VERDICT_CANCELLED)


def not_run(why: str) -> ExecuteResponse:
    """The result of a call that cannot start."""
    return _error(why, VERDICT_NOT_RUN)


def _error(text: str, verdict: Verdict.ValueType) -> ExecuteResponse:
    response = ExecuteResponse(is_error=True, verdict=verdict)
    response.content.add().text.text = text
    return response
