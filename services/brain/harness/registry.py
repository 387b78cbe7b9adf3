"""Harnesses by name (ARCHITECTURE §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.event.v1.session_event_pb2 import PlainError, SessionError
from services.brain.domain.decision import (
    CallModel,
    Compact,
    Decision,
    GiveUp,
    Mine,
    TakeMessage,
)
from services.brain.harness import plugins
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.standard import StandardHarness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.session.v1.lease_pb2 import InputWaiting
    from services.brain.domain.state import State
    from services.brain.harness.port import Harness, Setup

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
    return HarnessRegistry(standard, [minimal, *others])


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
        return self._by_name.get(name) or MissingHarness(name, sorted(self._by_name))


class MissingHarness(StandardHarness):
    """Stands for a harness that this brain does not have: every turn ends with an error."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__()
        self._missing = name
        self._known = known

    @property
    def name(self) -> str:
        """The name that was asked for."""
        return self._missing

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """As the standard harness, but no turn is begun."""
        decision = super().decide(state, waiting, mine)
        if not isinstance(decision, TakeMessage | CallModel | Compact):
            return decision
        return GiveUp(
            SessionError(
                message=(
                    f"This brain has no harness named {self._missing!r}, which the agent's "
                    f"metadata asks for under {HARNESS_KEY!r}. It has: {', '.join(self._known)}."
                ),
                unknown_error=PlainError(),
            )
        )
