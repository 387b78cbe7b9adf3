"""The standard harness: the whole conversation, cached prefix first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_UNSPECIFIED,
    MODEL_SPEED_FAST,
    EffortLevel,
)
from services.brain.domain import content, decision, projection
from services.brain.domain.content import quoted
from services.brain.domain.decision import Limits
from services.brain.domain.state import begin
from services.brain.domain.transcript import CACHE_CONTROL
from services.brain.harness import toolset
from services.brain.harness.port import ModelRequest

if TYPE_CHECKING:
    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.decision import Decision, Mine
    from services.brain.domain.state import State

FOLD: Final = 1
"""To be raised when the same log folds into another state (`tests/replay/folds.json`)."""

MAX_OUTPUT_TOKENS: Final = 32_000
"""Default of `max_tokens`. Every model that has adaptive thinking takes as many."""

SANDBOX_NOTE: Final = (
    "You work in a sandbox of your own. Your files belong in /workspace, which lasts as long as "
    "the session. Put what you make for the user into /mnt/session/outputs: it is delivered from "
    "there."
)

FAST_MODE_BETA: Final = "fast-mode-2026-02-01"

# Models from 4.6 on choose by themselves how long to think; earlier ones refuse to be asked to.
# Dated ids of the first 4 series look like claude-opus-4-20250514.
_ADAPTIVE: Final = re.compile(r"claude-(?:opus|sonnet|haiku|fable|mythos)-(?:4-[6-9]|[5-9])(?!\d)")


class StandardHarness:
    """Shows the model everything that the log holds.

    Two kinds of cache breakpoints are set: behind the tools and the system prompt, which many
    sessions share, and behind the newest messages, which the next request repeats.
    """

    def __init__(
        self, *, max_output_tokens: int = MAX_OUTPUT_TOKENS, limits: Limits | None = None
    ) -> None:
        self._max_output_tokens = max_output_tokens
        self._limits = limits or Limits()

    @property
    def name(self) -> str:
        """Its name in an agent's metadata."""
        return "standard"

    @property
    def fold(self) -> str:
        """Names the way in which it folds."""
        return f"standard-{FOLD}"

    def begin(self, session: Session) -> State:
        """The state of `session` before its log is folded."""
        return begin(session)

    def project(self, state: State, event: Event, at: float) -> None:
        """Folds the next event of the log."""
        projection.project(state, event, at)

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """The next step."""
        return decision.decide(state, waiting, mine, self._limits)

    def request(self, state: State) -> ModelRequest:
        """The agent's settings, system prompt and tools, and then the conversation."""
        if not state.prefix:
            state.prefix = self._prefix(state)
        model = state.agent.model
        return ModelRequest(
            model=model.id,
            body=state.transcript.render(state.prefix, b"]}", breakpoints=2),
            betas=(FAST_MODE_BETA,) if model.speed == MODEL_SPEED_FAST else (),
        )

    def _prefix(self, state: State) -> bytes:
        agent = state.agent
        parts = [
            b'{"model":%b,"max_tokens":%d,"stream":true'
            % (quoted(agent.model.id), self._max_output_tokens),
            *_options(agent),
        ]
        customs = [tool.custom for tool in agent.tools if tool.HasField("custom")]
        offered = state.permissions.offered
        tools = toolset.definitions(offered, customs)
        system = [content.text_block(agent.system)] if agent.system.strip() else []
        if offered:
            system.append(content.text_block(SANDBOX_NOTE))
        # One breakpoint behind whichever comes last covers both.
        for blocks in (system, tools):
            if blocks:
                blocks[-1] = blocks[-1][:-1] + CACHE_CONTROL
                break
        if tools:
            parts.append(b',"tools":[%b]' % b",".join(tools))
        if system:
            parts.append(b',"system":[%b]' % b",".join(system))
        parts.append(b',"messages":[')
        return b"".join(parts)


def _options(agent: SessionAgent) -> list[bytes]:
    model = agent.model
    options: list[bytes] = []
    if _ADAPTIVE.search(model.id):
        options.append(b',"thinking":{"type":"adaptive"}')
    if model.effort.type not in (EFFORT_LEVEL_UNSPECIFIED, EFFORT_LEVEL_HIGH):
        level = EffortLevel.Name(model.effort.type).removeprefix("EFFORT_LEVEL_").lower()
        options.append(b',"output_config":{"effort":%b}' % quoted(level))
    if model.speed == MODEL_SPEED_FAST:
        options.append(b',"speed":"fast"')
    if model.inference_geo:
        options.append(b',"inference_geo":%b' % quoted(model.inference_geo))
    return options
