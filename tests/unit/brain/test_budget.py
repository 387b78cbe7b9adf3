"""What is used costs what the list says, and no request is made at the budget's cap."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.models import Catalogue, Price, load
from drover.agent.v1.model_pb2 import MODEL_SPEED_FAST
from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_ALLOW
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import SessionUpdated
from drover.event.v1.span_event_pb2 import ModelUsage
from drover.session.v1.lease_pb2 import InputWaiting
from services.brain.domain import budget, events
from services.brain.domain import decision as d
from services.brain.domain.decision import Limits, Mine
from services.brain.domain.state import State, Status
from services.brain.domain.usage import UsageTotals
from services.brain.harness.standard import StandardHarness
from tests.unit.brain import logs

MODELS = load(None)
HARNESS = StandardHarness(limits=Limits(prices=MODELS))
OPUS, HAIKU = "claude-opus-5-5", "claude-haiku-5-5"
QUIET, MESSAGE = InputWaiting(), InputWaiting(message=True)
FRESH = Mine()
COUNTS = st.integers(0, 10_000_000)
USAGES = st.builds(
    lambda speed, new, out, read, short, long: ModelUsage(
        speed=speed,
        input_tokens=new,
        output_tokens=out,
        cache_read_input_tokens=read,
        cache_creation_input_tokens=short + long,
        cache_creation_1h_input_tokens=long,
    ),
    st.sampled_from(["", "standard", "fast"]),
    *[COUNTS] * 5,
)


def billed(usage: ModelUsage, model_id: str, models: Catalogue = MODELS) -> ModelUsage:
    budget.bill(usage, model_id, models)
    return usage


def tokens_in_dollars(usage: ModelUsage, price: Price) -> Fraction:
    long = usage.cache_creation_1h_input_tokens
    return Fraction(
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_input_tokens * price.cache_read
        + (usage.cache_creation_input_tokens - long) * price.cache_write_5m
        + long * price.cache_write_1h,
        10**12,
    )


@given(st.lists(st.tuples(st.sampled_from([OPUS, HAIKU, "claude-opus-5"]), USAGES), max_size=8))
def test_a_cost_is_exact_and_does_not_depend_on_the_order(used) -> None:
    expected: Fraction | None = Fraction(0)
    for model_id, usage in used:
        model = MODELS.of(model_id)
        prompt = usage.input_tokens + usage.cache_read_input_tokens
        prompt += usage.cache_creation_input_tokens
        price = model.price
        if usage.speed == "fast":
            price = model.fast_price
        elif model.long_prompt is not None and prompt > model.long_prompt.above:
            price = model.long_prompt.price
        counts = any(count for field, count in usage.ListFields() if field.name != "speed")
        if counts and price is None:
            expected = None
        elif counts and price is not None and expected is not None:
            expected += tokens_in_dollars(usage, price)
    for order in (used, used[::-1]):
        totals = UsageTotals()
        for model_id, usage in order:
            totals.add(billed(usage, model_id), "unknown")
        cost = budget.cost(totals, 0.0, MODELS)
        assert (cost and Fraction(cost.total, 10**12)) == expected or (cost, expected) == (
            None,
            None,
        )


def test_a_running_hour_costs_eight_cents_and_rest_nothing() -> None:
    totals = UsageTotals()
    totals.run(1000.0)
    totals.rest(1000.0 + 1800)
    totals.run(9000.0)
    cost = budget.cost(totals, 9000.0 + 1800, MODELS)
    assert cost == budget.Cost(tokens=0, total=8 * budget.PICO_PER_CENT)


def test_reported_figures_are_whole_cents_to_the_nearest() -> None:
    totals = UsageTotals()
    totals.add(ModelUsage(output_tokens=250), OPUS)  # $0.005
    told = budget.told(totals, 0.0, MODELS)
    assert (told.list_cost.amount, told.list_cost.currency) == ("1", "USD")
    assert told.exact_list_cost == told.exact_token_cost == budget.PICO_PER_CENT // 2
    totals = UsageTotals()
    totals.add(ModelUsage(output_tokens=249), OPUS)
    assert budget.told(totals, 0.0, MODELS).list_cost.amount == "0"


def test_a_model_without_a_price_leaves_the_cost_untold() -> None:
    totals = UsageTotals()
    totals.add(ModelUsage(input_tokens=1), OPUS)
    totals.add(ModelUsage(input_tokens=1), "somebody-elses")
    told = budget.told(totals, 0.0, MODELS)
    assert told.input_tokens == 2
    assert not told.HasField("list_cost")
    assert not told.HasField("exact_list_cost")


def test_a_cost_beyond_what_the_contract_holds_is_told_as_its_most() -> None:
    totals = UsageTotals()
    totals.add(ModelUsage(output_tokens=1 << 40), OPUS)
    assert budget.told(totals, 0.0, MODELS).exact_list_cost == (1 << 63) - 1


def test_requests_of_old_logs_are_the_agents_models() -> None:
    log = Log(cap=None)
    log.request(ModelUsage(output_tokens=500))
    assert budget.told(log.state.usage, 0.0, MODELS).list_cost.amount == "1"


class Log:
    """A session's log under construction, with a budget in cents."""

    def __init__(self, cap: int | None = 1, model_id: str = OPUS) -> None:
        self.session = logs.session(*logs.every_kind_of_tool(), model_id=model_id)
        if cap is not None:
            self.session.budget.CopyFrom(budget.message(cap))
        self.factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")
        self.state: State = HARNESS.begin(self.session)

    def add(self, *more: Event) -> Log:
        for event in more:
            self.state.seq += 1
            event.seq = self.state.seq
            HARNESS.project(self.state, event, 0.0)
        return self

    def request(self, usage: ModelUsage, *calls: str) -> Log:
        start = self.factory.request_start()
        said = [Event(id=self.factory.new_id()) for _ in calls]
        for event, name in zip(said, calls, strict=True):
            if name == "ask_user":
                event.agent_custom_tool_use.name = name
                event.agent_custom_tool_use.input = "{}"
            else:
                event.agent_tool_use.name = name
                event.agent_tool_use.input = "{}"
                event.agent_tool_use.evaluated_permission = EVALUATED_PERMISSION_ALLOW
        end = Event(id=self.factory.new_id())
        end.span_model_request_end.model_request_start_id = start.id
        end.span_model_request_end.model_usage.CopyFrom(usage)
        return self.add(start, *said, end)

    def turn(self, *calls: str, tokens: int = 500) -> Log:
        """A turn whose first request costs a cent for every 500 tokens, and calls these tools."""
        self.add(logs.message("Hi"), *self.factory.running())
        return self.request(ModelUsage(output_tokens=tokens), *calls)

    def answered(self) -> Log:
        for call in self.state.open_calls():
            self.add(self.factory.result(call.id, [], is_error=False))
        return self

    def idle(self, decision: d.Decision) -> Log:
        assert isinstance(decision, d.GoIdle)
        told = budget.told(self.state.usage, 0.0, MODELS)
        return self.add(
            *self.factory.idle(decision.reason, None, told, None, thread=decision.thread)
        )

    def updated(self, cap: int | None) -> Log:
        changed = SessionUpdated(budget=budget.message(cap), budget_removed=cap is None)
        return self.add(Event(id=self.factory.new_id(), session_updated=changed))

    def next(self, waiting: InputWaiting = QUIET, mine: Mine = FRESH) -> d.Decision:
        return HARNESS.decide(self.state, waiting, mine)


AT_BUDGET = d.StopReason(budget_reached=d.BudgetReached())
ENDED = d.StopReason(end_turn=d.EndTurn())


def test_work_below_the_cap_goes_on_and_at_it_pauses_before_the_next_request() -> None:
    below = Log().turn("bash", tokens=499).answered()
    assert below.next() == d.CallModel()
    at = Log().turn("bash").answered()
    assert at.next() == d.GoIdle(AT_BUDGET)
    assert at.next(MESSAGE) == d.GoIdle(AT_BUDGET)


def test_tools_that_were_called_still_run_at_the_cap() -> None:
    assert isinstance(Log().turn("bash").next(), d.RunTools)


def test_calls_that_wait_for_people_outrank_the_budget() -> None:
    log = Log().turn("ask_user")
    decision = log.next()
    assert isinstance(decision, d.GoIdle)
    assert decision.reason.HasField("requires_action")
    log.idle(decision).answered()
    assert log.next() == d.GoIdle(AT_BUDGET)


def test_the_session_is_at_its_budget_even_where_the_turn_has_ended() -> None:
    log = Log().turn()
    decision = log.next()
    assert decision == d.GoIdle(AT_BUDGET, thread=ENDED)
    thread, _, session = log.factory.idle(AT_BUDGET, None, log.state.usage.snapshot(0), None, ENDED)
    assert thread.session_thread_status_idle.stop_reason == ENDED
    assert session.session_status_idle.stop_reason == AT_BUDGET


def test_an_interrupt_at_the_cap_ends_the_turn_and_takes_no_message_along() -> None:
    log = Log().turn("bash").answered()
    decision = log.next(InputWaiting(interrupt=True, message=True))
    assert decision == d.GoIdle(AT_BUDGET, thread=ENDED, take_interrupt=True)


def test_a_request_that_was_announced_is_closed_when_the_cap_is_reached_first() -> None:
    log = Log().turn("bash", tokens=1).answered()
    start = log.factory.request_start()
    log.add(start).updated(cap=1)
    log.state.usage.add(ModelUsage(output_tokens=500), OPUS)
    assert log.next(mine=Mine(request=start.id)) == d.CloseRequest()
    log.add(log.factory.request_failed(start.id))
    assert log.next() == d.GoIdle(AT_BUDGET)


@pytest.mark.parametrize("cap", [2, None])
def test_paused_work_goes_on_where_it_was_once_there_is_more_budget(cap) -> None:
    log = Log().turn("bash").answered()
    log.idle(log.next())
    assert log.state.status is Status.IDLE
    assert log.next() == d.GoIdle(AT_BUDGET)
    log.updated(cap)
    assert log.next() == d.EnterRunning()
    log.add(*log.factory.running())
    assert log.next() == d.CallModel()


def test_more_budget_behind_an_ended_turn_ends_the_pause_or_begins_the_next_turn() -> None:
    log = Log().turn()
    log.idle(log.next())
    assert log.next() == d.GoIdle(AT_BUDGET, thread=ENDED)
    log.updated(cap=2)
    assert log.next(MESSAGE) == d.TakeMessage()
    assert log.next() == d.GoIdle(ENDED)
    assert log.idle(log.next()).next() == d.Release()


def test_a_message_is_not_taken_where_no_request_could_follow() -> None:
    log = Log(model_id="somebody-elses")
    assert log.next(MESSAGE) == d.GoIdle(AT_BUDGET)
    assert Log(cap=None, model_id="somebody-elses").next(MESSAGE) == d.TakeMessage()


def test_fast_mode_without_a_price_of_its_own_is_not_budgeted_at_another() -> None:
    log = Log(model_id=HAIKU)
    assert log.next(MESSAGE) == d.TakeMessage()
    log.state.agent.model.speed = MODEL_SPEED_FAST
    assert log.next(MESSAGE) == d.GoIdle(AT_BUDGET)


def test_running_time_counts_against_the_budget_up_to_the_last_event_that_tells_it() -> None:
    log = Log(cap=8).turn("bash", tokens=1)
    running, result = log.factory.running(), None
    for event in running:
        event.processed_at.seconds = 1_000
        log.add(event)
    (call,) = log.state.open_calls()
    result = log.factory.result(call.id, [], is_error=False)
    result.processed_at.seconds = 1_000 + 3_600
    assert log.add(result).next() == d.GoIdle(AT_BUDGET)


def test_a_fork_follows_its_own_budget_and_not_the_copied_updates() -> None:
    log = Log(cap=2)
    log.session.forked_from.seq = 1
    log.state = HARNESS.begin(log.session)
    log.updated(cap=1_000)
    assert log.state.budget == 2
    log.updated(cap=3)
    assert log.state.budget == 3


def test_a_session_with_a_budget_has_no_message_taken_unseen() -> None:
    assert d.rests(HARNESS.begin(logs.session()))
    assert not d.rests(Log().state)


def test_what_is_not_in_the_log_yet_counts_too() -> None:
    log = Log().turn("bash", tokens=499).answered()
    before = replace(log.state.usage, counted=dict(log.state.usage.counted))
    assert not budget.reached(log.state, MODELS)
    assert budget.reached(log.state, MODELS, ModelUsage(output_tokens=1))
    assert log.state.usage == before


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_no_request_begins_at_the_cap_whatever_happens_and_whoever_dies(seed, cap) -> None:
    world = logs.World(seed, HARNESS)
    world.session.agent.model.id = OPUS
    world.session.budget.CopyFrom(budget.message(cap))
    world.state = HARNESS.begin(world.session)
    dearest = 0
    for _ in range(120):
        before = budget.cost(world.state.usage, world.state.usage.latest, MODELS)
        assert before is not None
        decision = world.step()
        after = budget.cost(world.state.usage, world.state.usage.latest, MODELS)
        assert after is not None
        if isinstance(decision, d.CallModel | d.Compact | d.TakeMessage):
            assert before.total < cap * budget.PICO_PER_CENT
        dearest = max(dearest, after.tokens - before.tokens)
    spent = budget.cost(world.state.usage, world.state.usage.latest, MODELS)
    assert spent is not None
    assert spent.tokens < cap * budget.PICO_PER_CENT + dearest + 1
