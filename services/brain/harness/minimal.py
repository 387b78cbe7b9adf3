"""The minimal harness: how little it takes to write one. Copy it; see docs/harness.md.

It shows the model the whole conversation and what the session was given, and nothing else: no cache
breakpoints, no thinking, nothing cleared and nothing summarised, so that a conversation ends where
the model's window does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from services.brain.domain import briefing, content, decision, projection, state
from services.brain.harness import options, toolset
from services.brain.harness.port import ModelRequest

if TYPE_CHECKING:
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.decision import Decision, Mine
    from services.brain.domain.state import State
    from services.brain.harness.port import Setup


class MinimalHarness:
    """Everything that a harness has to have, and no more."""

    name = "minimal"
    # Changes when `project` comes to fold a log differently: stored states are then made again.
    fold = "minimal-1"

    def __init__(self, setup: Setup) -> None:
        self._models = setup.models
        self._max_output_tokens = setup.max_output_tokens
        # A conversation that is too long ends the turn: it is not summarised.
        self._limits = replace(setup.limits, compactions=0)

    def begin(self, session: Session) -> State:
        """What is known of a session before its log is read."""
        return state.begin(session)

    def project(self, state: State, event: Event, at: float) -> None:
        """Takes the next event of the log into the state."""
        projection.project(state, event, at)

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """What is done next. A policy of your own may look at the state first."""
        return decision.decide(state, waiting, mine, self._limits)

    def request(self, state: State) -> ModelRequest:
        """What the model is sent, when it is to be asked."""
        agent = state.agent
        model = self._models.of(agent.model.id)
        customs = [tool.custom for tool in agent.tools if tool.HasField("custom")]
        remotes = state.servers.offered(agent)
        shown = (*state.permissions.offered, *state.permissions.web)
        tools = toolset.definitions(shown, customs, remotes)
        parts = [options.head(agent.model, model, self._max_output_tokens, think=False)]
        if tools:
            parts.append(b',"tools":[%b]' % b",".join(tools))
        own = [agent.system] if agent.system.strip() else []
        if told := [*own, *briefing.shared(state), *briefing.own(state)]:
            parts.append(b',"system":[%b]' % b",".join(map(content.text_block, told)))
        parts.append(b',"messages":[')
        body = state.transcript.render(b"".join(parts), b"]}")
        return ModelRequest(agent.model.id, body, options.betas(agent.model, model))
