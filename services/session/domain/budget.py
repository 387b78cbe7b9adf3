"""Budgets: what a session may be given, and when one that has spent it goes on (EVENTS §15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.agent.v1 import model_pb2
from drover.event.v1 import usage_pb2
from services.session.domain.admission import refuse
from services.session.domain.session import Status, Stop

if TYPE_CHECKING:
    from catalogue.models import Catalogue
    from drover.agent.v1 import agent_pb2
    from services.session.domain.session import SessionState

PICO_PER_CENT: Final = 10**10
"""Costs are counted in pico-dollars, budgets in cents."""

_TAKEN_AT_CAP: Final = (
    "user.tool_confirmation",
    "user.tool_result",
    "user.custom_tool_result",
    "user.interrupt",
)


def cents(budget: usage_pb2.Budget) -> int:
    """The cap of a budget. Raises INVALID_ARGUMENT for one that nothing could be done with."""
    amount = int(budget.max_list_cost.amount or 0)
    if not amount:
        raise refuse("budget.max_list_cost.amount", "must be above zero")
    return amount


def message(cap: int) -> usage_pb2.Budget:
    """A cap in cents as a budget."""
    return usage_pb2.Budget(max_list_cost=_dollars(cap))


def money(pico: int) -> usage_pb2.MonetaryAmount:
    """An exact cost as it is reported: rounded to the nearest cent."""
    return _dollars((pico + PICO_PER_CENT // 2) // PICO_PER_CENT)


def _dollars(whole_cents: int) -> usage_pb2.MonetaryAmount:
    return usage_pb2.MonetaryAmount(amount=str(whole_cents), currency="USD")


def check_model(agent: agent_pb2.SessionAgent, models: Catalogue) -> None:
    """Raises INVALID_ARGUMENT for an agent whose model no budget can measure."""
    model = models.of(agent.model.id)
    fast = agent.model.speed == model_pb2.MODEL_SPEED_FAST
    if (model.fast_price if fast else model.price) is None:
        speed = " in fast mode" if fast else ""
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"budget: {agent.model.id} has no list price{speed}, so no budget can be kept",
            error_code="model_not_budgetable",
        )


def check_raised(state: SessionState, cap: int) -> None:
    """Raises INVALID_ARGUMENT unless a new cap is above what the session has consumed.

    That is what a brain last told. While it works on, it holds against the cap what is used since.
    """
    usage = usage_pb2.UsageSnapshot.FromString(state.usage)
    if usage.exact_list_cost >= cap * PICO_PER_CENT:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            "budget.max_list_cost.amount: must be above what the session has consumed, "
            f"${usage.exact_list_cost / (100 * PICO_PER_CENT):.4f}",
            error_code="budget_not_raised",
        )


def is_spent(state: SessionState) -> bool:
    """Whether the session stands at its budget, and nobody is on the way to see about that."""
    idle = state.activity.status is Status.IDLE and not state.needs_brain
    return idle and state.stop is Stop.BUDGET_REACHED


def check_taken(state: SessionState, event_type: str, path: str) -> None:
    """Raises INVALID_ARGUMENT for what a session at its budget does not take."""
    if is_spent(state) and event_type not in _TAKEN_AT_CAP:
        raise refuse(
            f"{path}.type",
            "the session is at its budget: until that is raised or removed, only "
            f"{', '.join(_TAKEN_AT_CAP[:-1])} and {_TAKEN_AT_CAP[-1]} are taken",
        )
