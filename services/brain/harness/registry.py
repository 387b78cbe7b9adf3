"""Harnesses by name (ARCHITECTURE §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.event.v1.session_event_pb2 import PlainError, SessionError
from services.brain.domain.decision import (
    CallModel,
    Compact,
    Decision,
    GiveUp,
    Interrupt,
    Mine,
    RunTools,
    TakeMessage,
)
from services.brain.harness import plugins
from services.brain.harness.guard import GuardedHarness
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.standard import StandardHarness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.state import State
    from services.brain.harness.port import Harness, ModelRequest, Setup

HARNESS_KEY: Final = "drover.harness"
"""Key of an agent's metadata that names its harness."""


def assemble(setup: Setup) -> HarnessRegistry:
    """The harnesses that ship, the standard one first, and those that are installed beside them.

    Raises `CannotStartError` for an installed one that is none.
    """
    standard = StandardHarness(
        max_output_tokens=setup.max_output_tokens,
        limits=setup.limits,
        models=setup.models,
        clearing=setup.clearing,
        compaction=setup.compaction,
    )
    minimal = MinimalHarness(setup)
    others = plugins.installed(setup, taken=(standard.name, minimal.name))
    return HarnessRegistry(standard, [minimal, *map(GuardedHarness, others)])


class HarnessRegistry:
    """The harnesses that this brain has; the first one serves agents that name none."""

    def __init__(self, default: Harness, others: Iterable[Harness] = ()) -> None:
        self._default = default
        self._by_name = {harness.name: harness for harness in (default, *others)}

    def __iter__(self) -> Iterator[Harness]:
        return iter(self._by_name.values())

    def choose(self, agent: SessionAgent) -> Harness:
        """The harness that `agent` asks for; one that says so if there is none of that name."""
        name = agent.metadata.get(HARNESS_KEY, "")
        if not name:
            return self._default
        if (harness := self._by_name.get(name)) is not None:
            return harness
        told = (
            f"This brain has no harness named {name!r}, which the agent's metadata asks for under "
            f"{HARNESS_KEY!r}. It has: {', '.join(sorted(self._by_name))}."
        )
        return UnusableHarness(name, told, self._default)

    def without(self, name: str, told: str) -> HarnessRegistry:
        """Where an agent asks for the harness `name`, chooses one that ends its turns."""
        return HarnessRegistry(UnusableHarness(name, told, self._default))


class UnusableHarness:
    """Stands for a harness that cannot be had: every turn ends with an error that is `told`.

    In all else it is `stand_in`, which knows the operator's limits and prices.
    """

    def __init__(self, name: str, told: str, stand_in: Harness) -> None:
        self._name = name
        self._told = told
        self._stand_in = stand_in

    @property
    def name(self) -> str:
        """The name that was asked for."""
        return self._name

    @property
    def fold(self) -> str:
        """See `Harness.fold`."""
        return self._stand_in.fold

    def begin(self, session: Session) -> State:
        """See `Harness.begin`."""
        return self._stand_in.begin(session)

    def project(self, state: State, event: Event, at: float) -> None:
        """See `Harness.project`."""
        self._stand_in.project(state, event, at)

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """As the stand-in, but no turn is begun, and no call runs that another would refuse."""
        decision = self._stand_in.decide(state, waiting, mine)
        if isinstance(decision, RunTools):
            return Interrupt(decision.calls)
        if not isinstance(decision, TakeMessage | CallModel | Compact):
            return decision
        return GiveUp(SessionError(message=self._told, unknown_error=PlainError()))

    def request(self, state: State) -> ModelRequest:
        """See `Harness.request`; never made."""
        return self._stand_in.request(state)
