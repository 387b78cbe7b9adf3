"""Golden logs: what a brain does next with a log that ends just there."""

from __future__ import annotations

import pytest

from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import PlainError, SessionError, SessionStatusTerminated
from drover.event.v1.user_event_pb2 import UserInterrupt
from drover.session.v1.lease_pb2 import InputWaiting
from services.brain.domain import decision as d
from services.brain.domain import events, response
from services.brain.domain.decision import Limits, Mine
from services.brain.domain.state import State
from services.brain.harness.standard import StandardHarness
from tests.doubles import scripted_model as model
from tests.unit.brain import logs
from tests.unit.brain.logs import fold

QUIET, FRESH = InputWaiting(), Mine()
MESSAGE = InputWaiting(message=True)
INTERRUPT = InputWaiting(interrupt=True)


class Log:
    """A log under construction."""

    def __init__(self) -> None:
        self.factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")
        self.session = logs.session(*logs.every_kind_of_tool())
        self.events: list[Event] = []

    def add(self, *more: Event) -> Log:
        self.events.extend(more)
        return self

    def asked(self, text: str = "Hi") -> Log:
        start = self.factory.request_start()
        return self.add(logs.message(text), *self.factory.running(), start)

    def replied(self, *blocks: list[model.Raw], **options: str) -> Log:
        assembler = response.ResponseAssembler(self.factory)
        for raw in model.response(*blocks, **options):
            assembler.feed(raw)
        state = self.state()
        return self.add(*assembler.finish(state.request, state.permissions))

    def called(self, *names: str) -> Log:
        calls = [model.tool(name, {}, f"toolu_{number}") for number, name in enumerate(names)]
        return self.asked().replied(*calls)

    def idle(self, reason: d.StopReason) -> Log:
        usage = self.state().usage.snapshot(0.0)
        return self.add(*self.factory.idle(reason, None, usage, None))

    def state(self) -> State:
        return fold(self.session, self.events)

    def next(
        self, waiting: InputWaiting = QUIET, mine: Mine = FRESH, limits: Limits | None = None
    ) -> d.Decision:
        return StandardHarness(limits=limits).decide(self.state(), waiting, mine)


def names(calls: tuple[d.Call, ...]) -> list[str]:
    return [call.name for call in calls]


def test_empty_log_with_a_message_waiting_begins_a_turn() -> None:
    assert Log().next(MESSAGE) == d.TakeMessage()
    assert Log().next() == d.Release()


def test_request_without_an_end_is_closed_unless_it_is_our_own() -> None:
    log = Log().asked()
    assert log.next() == d.CloseRequest()
    assert log.next(mine=Mine(request=log.state().request)) == d.CallModel()
    log.add(log.factory.request_failed(log.state().request))
    assert log.next() == d.CallModel()


def test_calls_without_results_are_run_again_under_their_ids() -> None:
    log = Log().called("bash", "read")
    decision = log.next()
    assert isinstance(decision, d.RunTools)
    assert [call.id for call in decision.calls] == [call.id for call in log.state().open_calls()]
    first, second = decision.calls
    log.add(log.factory.result(first.id, [], is_error=False))
    assert log.next() == d.RunTools((second,))
    assert log.next(mine=Mine(running={second.id})) == d.AwaitTools()


def test_all_results_lead_to_the_next_request() -> None:
    log = Log().called("bash")
    (call,) = log.state().open_calls()
    log.add(log.factory.result(call.id, [], is_error=False))
    assert log.next() == d.CallModel()
    assert log.next(MESSAGE) == d.CallModel()


def test_finished_reply_ends_the_turn_or_begins_the_next() -> None:
    log = Log().asked().replied(model.text("Hello."))
    assert log.next() == d.GoIdle(d.StopReason(end_turn=d.EndTurn()))
    assert log.next(MESSAGE) == d.TakeMessage()
    assert log.idle(d.StopReason(end_turn=d.EndTurn())).next() == d.Release()


def test_pause_of_the_model_is_followed_by_another_request() -> None:
    log = Log().asked().replied(model.text("Wait."), stop_reason="pause_turn")
    assert log.next() == d.CallModel()


def test_refused_calls_are_answered_before_anything_runs() -> None:
    log = Log().called("bash", "edit", "nonsense")
    decision = log.next()
    assert isinstance(decision, d.Refuse)
    assert names(decision.calls) == ["edit", "nonsense"]


def test_calls_that_wait_for_people_pause_the_turn_after_the_others_have_run() -> None:
    log = Log().called("ask_user", "write", "bash")
    custom, asked, free = log.state().open_calls()
    assert log.next() == d.RunTools((free,))
    log.add(log.factory.result(free.id, [], is_error=False))
    assert log.next() == d.GoIdle(
        d.StopReason(requires_action=d.RequiresAction(event_ids=[custom.id, asked.id]))
    )
    log.idle(d.StopReason(requires_action=d.RequiresAction(event_ids=[custom.id, asked.id])))
    assert isinstance(log.next(InputWaiting(confirmation=True)), d.TakeControl)
    # A message cannot help: the calls are waited for.
    assert isinstance(log.next(MESSAGE), d.GoIdle)


def test_interrupt_closes_request_calls_and_turn_in_this_order() -> None:
    log = Log().asked()
    assert log.next(INTERRUPT) == d.CloseRequest()
    log = Log().called("bash", "ask_user")
    decision = log.next(INTERRUPT)
    assert isinstance(decision, d.Interrupt)
    for call in decision.calls:
        log.add(log.factory.result(call.id, [], is_error=True))
    end = d.StopReason(end_turn=d.EndTurn())
    assert log.next(INTERRUPT) == d.GoIdle(end, take_interrupt=True)
    both = InputWaiting(interrupt=True, message=True)
    assert log.next(both) == d.GoIdle(end, take_interrupt=True, more=True)
    log.add(Event(user_interrupt=UserInterrupt()))
    assert log.next() == d.GoIdle(end)


def test_failed_request_is_rested_from_and_made_again() -> None:
    log = Log().asked()
    error = SessionError(message="no", model_overloaded_error=PlainError())
    log.add(
        log.factory.request_failed(log.state().request),
        log.factory.error(error, retrying=True),
        *log.factory.rescheduled(),
    )
    assert log.next() == d.Rest(1)
    assert log.next(mine=Mine(rested=True)) == d.EnterRunning()
    log.add(*log.factory.running())
    assert log.next() == d.CallModel()


@pytest.mark.parametrize("lost", [4, 5])
def test_requests_lost_with_their_brains_are_not_made_for_ever(lost: int) -> None:
    log = Log().asked()
    for _ in range(lost):
        log.add(log.factory.request_failed(log.state().request), log.factory.request_start())
    log.events.pop()
    assert isinstance(log.next(), d.GiveUp if lost == 5 else d.CallModel)


def test_turn_has_a_limit_of_requests() -> None:
    log = Log().called("bash")
    (call,) = log.state().open_calls()
    log.add(log.factory.result(call.id, [], is_error=False))
    assert log.next(limits=Limits(requests=2)) == d.CallModel()
    decision = log.next(limits=Limits(requests=1))
    assert isinstance(decision, d.GiveUp)
    assert decision.error.HasField("tool_use_limit_reached_error")


def test_full_context_window_is_summarised_and_the_reply_goes_on() -> None:
    log = Log().asked().replied(model.text("And"), stop_reason="model_context_window_exceeded")
    assert log.next() == d.CallModel()
    log.add(start := log.factory.request_start())
    assert log.next(mine=Mine(start.id)) == d.Compact()


def test_window_that_stays_full_ends_the_turn_with_an_error() -> None:
    log = Log().asked()
    for _ in range(3):
        log.add(log.factory.request_failed(log.state().request, overflow=True))
        assert log.next() == d.CallModel()
        log.add(log.factory.request_start())
    log.add(log.factory.request_failed(log.state().request, overflow=True))
    decision = log.next()
    assert isinstance(decision, d.GiveUp)
    assert decision.error.HasField("compaction_limit_reached_error")


def test_replies_that_are_cut_off_are_continued_a_few_times() -> None:
    log = Log().asked().replied(model.text("a"), stop_reason="max_tokens")
    for _ in range(3):
        assert log.next() == d.CallModel()
        log.add(log.factory.request_start()).replied(model.text("b"), stop_reason="max_tokens")
    assert isinstance(log.next(), d.GoIdle)


def test_terminated_session_is_left_alone() -> None:
    log = Log().add(Event(session_status_terminated=SessionStatusTerminated()))
    assert log.next(MESSAGE) == d.Stop()
