"""What a brain does next, from the log alone: recovery is the normal path.

`decide` knows nothing of which brain asks. A brain that died is replaced by one that folds the same
log and comes to the same next step: an open request is closed and made again, calls without a
result are run again under their ids, and the hands' journal sees to it that nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from catalogue.models import Catalogue, unlisted
from drover.event.v1.session_event_pb2 import (
    BudgetReached,
    EndTurn,
    PlainError,
    Refusal,
    RefusalDetails,
    RequiresAction,
    SessionError,
    StopReason,
)
from services.brain.domain import budget, servers
from services.brain.domain.calls import Answerer, Call
from services.brain.domain.state import State, Status

if TYPE_CHECKING:
    from drover.session.v1.lease_pb2 import InputWaiting


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one turn, so that every session comes to rest (ARCHITECTURE §9, P4)."""

    # Model requests that end well; a model that never stops calling tools ends here.
    requests: int = 200
    # Requests in a row whose brain died before their end.
    lost: int = 5
    # What a budget is held against.
    prices: Catalogue = field(default_factory=unlisted)
    # Overflows and compactions in a row, with none of which there was room again. A harness that
    # does not compact has 0.
    compactions: int = 4


@dataclass(frozen=True, slots=True)
class Mine:
    """What this brain has in hand. Empty for a brain that has just woken.

    `request` is the open model request that it has announced and can still make, `running` are the
    calls that it has sent to the hands, `rested` says that it has waited after a failure, `listed`
    that it has the answer of the MCP servers.
    """

    request: str = ""
    running: AbstractSet[str] = frozenset()
    rested: bool = False
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The session is at its end: nothing may be appended any more."""


@dataclass(frozen=True, slots=True)
class Release:
    """Nothing is to be done: give the lease back."""


@dataclass(frozen=True, slots=True)
class TakeControl:
    """Take the confirmations that wait, and catch up with a log that has grown."""


@dataclass(frozen=True, slots=True)
class TakeMessage:
    """Take the next user message and begin its turn."""


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """End a model request whose answer nobody waits for any more."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop these calls and record that they were interrupted."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Record the harness's own answer to these calls, which may not run."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class EnterRunning:
    """Announce that the session runs."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait before the next attempt, of which this many have failed.

    `retry_after` is the wait in seconds that the server asked for, 0 where it named none.
    """

    failures: int
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ListTools:
    """Wait until the MCP servers have said what they offer: the next request is to show it."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Announce a request, and ask the model when what the log tells of it still wants that."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Ask the model for a summary, which is to stand for the older part of the conversation."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Have these calls answered by the hands or from the log, all at once."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class AwaitTools:
    """Calls are running: wait for a result, or for input."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the turn with an error; what waits in the inbox is taken and left unanswered."""

    error: SessionError


@dataclass(frozen=True, slots=True)
class GoIdle:
    """End or pause the turn.

    `thread` is the thread's reason where it is another than the session's.
    `take_interrupt` takes the waiting interrupt first, so that it shows before the idle event.
    `more` says that input waits which begins another turn: the lease is kept.
    """

    reason: StopReason
    details: RefusalDetails | None = None
    thread: StopReason | None = None
    take_interrupt: bool = False
    more: bool = False


Decision = (
    Stop
    | Release
    | TakeControl
    | TakeMessage
    | CloseRequest
    | Interrupt
    | Refuse
    | EnterRunning
    | Rest
    | ListTools
    | CallModel
    | Compact
    | RunTools
    | AwaitTools
    | GiveUp
    | GoIdle
)

_ELSEWHERE: Final = (Answerer.CLIENT, Answerer.WORKER)
_AT_BUDGET: Final = StopReason(budget_reached=BudgetReached())


def rests(state: State) -> bool:
    """Whether only input can move the session on: what is woken for it may take it unseen."""
    return (
        state.status is Status.IDLE
        and state.budget is None
        and not state.needs_model
        and not state.interrupted
        and not state.request
        and not state.open_calls()
    )


def decide(state: State, waiting: InputWaiting, mine: Mine, limits: Limits) -> Decision:  # noqa: PLR0911  # a list of rules
    """The next step of a session in `state`, with `waiting` in its inbox."""
    if state.status is Status.TERMINATED:
        return Stop()
    if waiting.interrupt or state.interrupted:
        return _interrupted(state, waiting, limits)
    if state.request and state.request != mine.request:
        return CloseRequest()
    if waiting.confirmation or waiting.log_grown:
        return TakeControl()
    if open_calls := state.open_calls():
        return _with_calls(state, mine, open_calls)
    if state.needs_model and budget.reached(state, limits.prices):
        # Said again even where nothing has changed: the session compares a release with the budget
        # that its idle event names.
        return CloseRequest() if state.request else GoIdle(_AT_BUDGET)
    if state.needs_model:
        return _ask(state, mine, limits)
    if state.request:
        return CloseRequest()
    return _at_rest(state, waiting, limits)


def _interrupted(state: State, waiting: InputWaiting, limits: Limits) -> Decision:
    if state.request:
        return CloseRequest()
    if open_calls := state.open_calls():
        return Interrupt(tuple(open_calls))
    ended = StopReason(end_turn=EndTurn())
    if budget.reached(state, limits.prices):
        return GoIdle(_AT_BUDGET, thread=ended, take_interrupt=waiting.interrupt)
    return GoIdle(ended, take_interrupt=waiting.interrupt, more=waiting.message)


def _with_calls(state: State, mine: Mine, open_calls: list[Call]) -> Decision:
    awaited = tuple(call.id for call in open_calls if call.answerer in _ELSEWHERE)
    if awaited and state.status is Status.IDLE:
        # Nothing runs before every call is answered (EVENTS §6), and no denial is recorded: a
        # result is of a running session. Said again even where nothing has changed: the session
        # compares a release with what its idle event waits for.
        return _require_action(awaited)
    refused = state.waiting_for(Answerer.HARNESS)
    runnable = [call for call in open_calls if call.answerer in (Answerer.HANDS, Answerer.LOG)]
    if (refused or runnable) and state.status is not Status.RUNNING:
        return EnterRunning()
    if refused:
        return Refuse(tuple(refused))
    if runnable:
        fresh = tuple(call for call in runnable if call.id not in mine.running)
        return RunTools(fresh) if fresh else AwaitTools()
    return _require_action(awaited)


def _require_action(awaited: tuple[str, ...]) -> GoIdle:
    return GoIdle(StopReason(requires_action=RequiresAction(event_ids=awaited)))


def _ask(state: State, mine: Mine, limits: Limits) -> Decision:  # noqa: PLR0911  # as above
    if state.lost >= limits.lost:
        return GiveUp(
            SessionError(
                message=f"The model request was cut off {state.lost} times in a row.",
                unknown_error=PlainError(),
            )
        )
    if state.requests >= limits.requests:
        return GiveUp(
            SessionError(
                message=f"The turn reached its limit of {limits.requests} model requests.",
                tool_use_limit_reached_error=PlainError(),
            )
        )
    if state.context.due and state.context.cramped >= limits.compactions:
        return GiveUp(
            SessionError(
                message="The conversation does not fit the model's context window.",
                compaction_limit_reached_error=PlainError(),
            )
        )
    if state.status is Status.RESCHEDULING and not mine.rested:
        return Rest(state.failures, state.retry_after)
    if state.status is not Status.RUNNING:
        return EnterRunning()
    if servers.due(state.agent, state.servers) and not (state.request or mine.listed):
        return ListTools()
    return Compact() if state.context.compacting else CallModel()


def _at_rest(state: State, waiting: InputWaiting, limits: Limits) -> Decision:
    if state.refusal is not None:
        return GoIdle(StopReason(refusal=Refusal()), details=state.refusal, more=waiting.message)
    spent = budget.reached(state, limits.prices)
    if waiting.message:
        return GoIdle(_AT_BUDGET) if spent else TakeMessage()
    if state.status is Status.IDLE and not state.at_budget:
        return Release()
    # With the budget reached the turn is over all the same (EVENTS §15).
    ended = StopReason(end_turn=EndTurn())
    return GoIdle(_AT_BUDGET, thread=ended) if spent else GoIdle(ended)
