"""What a session has cost at list prices, and whether its budget lets it ask the model again.

Counted from the log alone and exact: tokens by model and rate, searches, and the time in `running`
up to the last event that tells one (EVENTS §12). Costs are whole pico-dollars, a trillion to the
dollar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drover.agent.v1.model_pb2 import MODEL_SPEED_FAST
from drover.event.v1.usage_pb2 import Budget, MonetaryAmount

if TYPE_CHECKING:
    from catalogue.models import Catalogue, Model, Price
    from drover.event.v1.span_event_pb2 import ModelUsage
    from drover.event.v1.usage_pb2 import UsageSnapshot
    from services.brain.domain.state import State
    from services.brain.domain.usage import UsageTotals

PICO_PER_CENT: Final = 10**10

FAST: Final = "fast"
LONG_PROMPT: Final = "long_prompt"
_MICROS: Final = 1_000_000
_HOUR_SECONDS: Final = 3600
_LARGEST: Final = (1 << 63) - 1
"""The most that the contract's fields hold: 9 million dollars."""


@dataclass(frozen=True, slots=True)
class Cost:
    """List cost in pico-dollars: of the tokens alone, and with searches and running time."""

    tokens: int
    total: int


def bill(usage: ModelUsage, model_id: str, models: Catalogue) -> None:
    """Writes down what the price of a request depends on: its model, and which of its rates."""
    usage.model = model_id
    usage.rate = _rate(usage, models.of(model_id))


def _rate(usage: ModelUsage, model: Model) -> str:
    if usage.speed == FAST:
        return FAST
    prompt = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    if model.long_prompt is not None and prompt > model.long_prompt.above:
        return LONG_PROMPT
    return ""


def cost(usage: UsageTotals, at: float, models: Catalogue) -> Cost | None:
    """What was used until `at`, in Unix time; None with a model that has no list price."""
    tokens = 0
    for (model_id, rate), counted in usage.by_rate():
        price = _price(models.of(model_id), rate)
        if price is None:
            return None
        prices = (
            price.input,
            price.output,
            price.cache_read,
            price.cache_write_5m,
            price.cache_write_1h,
        )
        tokens += sum(count * each for count, each in zip(counted, prices, strict=True))
    running = round(usage.active_at(at) * _MICROS) * models.rates.running_hour // _HOUR_SECONDS
    searches = usage.searches * models.rates.thousand_searches * _MICROS // 1000
    return Cost(tokens, tokens + searches + running)


def _price(model: Model, rate: str) -> Price | None:
    if rate == FAST:
        return model.fast_price
    if rate == LONG_PROMPT and model.long_prompt is not None:
        return model.long_prompt.price
    return model.price


def told(usage: UsageTotals, at: float, models: Catalogue) -> UsageSnapshot:
    """The usage as of `at` with its cost, for the log and the session."""
    snapshot = usage.snapshot(at)
    if (spent := cost(usage, at, models)) is not None:
        snapshot.exact_token_cost = min(spent.tokens, _LARGEST)
        snapshot.exact_list_cost = min(spent.total, _LARGEST)
        cents = (spent.total + PICO_PER_CENT // 2) // PICO_PER_CENT
        snapshot.list_cost.CopyFrom(_dollars(cents))
    return snapshot


def reached(state: State, models: Catalogue, unlogged: ModelUsage | None = None) -> bool:
    """Whether the session may not ask its model (again).

    That is so when its cost is at the cap, when that cannot be told, and when the next request's
    price is not known. `unlogged` is a request that ended and is not in the log yet.
    """
    if state.budget is None:
        return False
    config = state.agent.model
    model = models.of(config.id)
    if _price(model, FAST if config.speed == MODEL_SPEED_FAST else "") is None:
        return True
    usage = state.usage if unlogged is None else state.usage.with_request(unlogged, config.id)
    spent = cost(usage, usage.latest, models)
    return spent is None or spent.total >= state.budget * PICO_PER_CENT


def message(cap: int | None) -> Budget | None:
    """A cap in cents as the contract has it."""
    return None if cap is None else Budget(max_list_cost=_dollars(cap))


def cap_of(budget: Budget) -> int:
    """The cap of a budget in cents."""
    return int(budget.max_list_cost.amount or 0)


def _dollars(cents: int) -> MonetaryAmount:
    return MonetaryAmount(amount=str(cents), currency="USD")
