"""The standard harness: the whole conversation, cached prefix first."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from catalogue.models import load
from services.brain.domain import briefing, content, decision, projection
from services.brain.domain.decision import Limits
from services.brain.domain.state import begin
from services.brain.domain.transcript import CACHE_CONTROL
from services.brain.harness import options, toolset, window
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.compaction import CompactionPolicy
from services.brain.harness.options import MAX_OUTPUT_TOKENS
from services.brain.harness.port import ModelRequest

if TYPE_CHECKING:
    from catalogue.models import Catalogue
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import InputWaiting
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.decision import Decision, Mine
    from services.brain.domain.state import State
    from services.brain.harness.window import Windows

FOLD: Final = 1
"""To be raised when the same log folds into another state (`tests/replay/folds.json`)."""

_STUCK: Final = 2
"""Overflows and summaries in a row, behind which there is nothing left to summarise."""

SANDBOX_NOTE: Final = (
    "You work in a sandbox of your own. Your files belong in /workspace, which lasts as long as "
    "the session. Put what you make for the user into /mnt/session/outputs: when your turn is "
    "over, they are handed the files that are there."
)

WORKER_NOTE: Final = (
    "Your tools run on a machine of the operator's. Where they speak of /workspace, the directory "
    "is meant in which they start there: give paths relative to it."
)


class StandardHarness:
    """Shows the model what the log holds, as far as it fits its window.

    Two kinds of cache breakpoints are set: behind the tools and the system prompt, which many
    sessions share, and behind the newest messages, which the next request repeats. What is left
    out, and when, `clearing` and `compaction` say; both look only when a request begins, at what
    the log holds up to its start.
    """

    def __init__(
        self,
        *,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
        limits: Limits | None = None,
        models: Catalogue | None = None,
        windows: Windows | None = None,
        clearing: ClearingPolicy | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> None:
        self._max_output_tokens = max_output_tokens
        self._limits = limits or Limits()
        self._models = load(None) if models is None else models
        self._windows = windows or self._window_of
        self._clearing = clearing or ClearingPolicy()
        self._compaction = compaction or CompactionPolicy(reply=max_output_tokens)

    @property
    def name(self) -> str:
        """Its name in an agent's metadata."""
        return "standard"

    @property
    def fold(self) -> str:
        """Names the way in which it folds.

        A model's window is not part of it: where an operator changes one, that shows in a session
        that was folded before from its next request on.
        """
        settings = (self._max_output_tokens, self._clearing, self._compaction)
        return f"standard-{FOLD}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:8]}"

    def begin(self, session: Session) -> State:
        """The state of `session` before its log is folded."""
        return begin(session)

    def project(self, state: State, event: Event, at: float) -> None:
        """Folds the next event of the log."""
        before = state.request
        projection.project(state, event, at)
        # The judge's requests are within another, which stays the open one.
        if state.request != before:
            if state.request:
                self._begin(state)
            elif not event.span_model_request_end.is_error:
                self._answered(state)

    def _begin(self, state: State) -> None:
        """Makes room for the request that has begun, or finds that it has to summarise."""
        context, of_window = state.context, self._window(state)
        size = window.size(state)
        if self._clearing.apply(state, size, of_window):
            self._ready(state)
            size = window.size(state)
        context.due = context.due or self._compaction.due(size, of_window)
        context.compacting = context.due and self._compaction.cut(state, of_window) > 0
        stuck = context.due and not context.compacting and context.cramped >= _STUCK
        if stuck and self._clearing.relieve(state, of_window):
            self._ready(state)
            context.due = self._compaction.due(window.size(state), of_window)

    def _answered(self, state: State) -> None:
        context = state.context
        if context.summary is not None:
            of_window = self._window(state)
            self._compaction.apply(state, context.summary, of_window)
            context.summary = None
            self._ready(state)
            context.due = self._compaction.due(window.size(state), of_window)
        elif (
            context.cramped
            and not context.due
            and not self._compaction.due(context.tokens, self._window(state))
        ):
            context.cramped = 0

    def _window(self, state: State) -> int:
        self._ready(state)
        return self._windows(state.agent.model.id)

    def _window_of(self, model_id: str) -> int:
        return self._models.of(model_id).context_window

    def _ready(self, state: State) -> None:
        if not state.prefix:
            state.prefix = self._prefix(state)

    def decide(self, state: State, waiting: InputWaiting, mine: Mine) -> Decision:
        """The next step."""
        return decision.decide(state, waiting, mine, self._limits)

    def request(self, state: State) -> ModelRequest:
        """The agent's settings, system prompt and tools, and then the conversation.

        With the order to summarise it behind, where that is what the request is for.
        """
        self._ready(state)
        model = state.agent.model
        if state.context.compacting:
            body = self._compaction.request(state, self._windows(model.id))
        else:
            body = state.transcript.render(state.prefix, b"]}", breakpoints=2)
        return ModelRequest(
            model=model.id,
            body=body,
            betas=options.betas(model, self._models.of(model.id)),
        )

    def _prefix(self, state: State) -> bytes:
        agent = state.agent
        known = self._models.of(agent.model.id)
        parts = [options.head(agent.model, known, self._max_output_tokens)]
        customs = [tool.custom for tool in agent.tools if tool.HasField("custom")]
        offered = state.permissions.offered
        remotes = state.servers.offered(agent)
        shown = (*offered, *state.permissions.web)
        tools = toolset.definitions(shown, customs, remotes, history=state.permissions.history)
        if not tools and state.called:
            # The API takes no calls in a conversation without tools.
            tools = [toolset.gone(name) for name in state.called]
            parts.append(b',"tool_choice":{"type":"none"}')
        system = [content.text_block(agent.system)] if agent.system.strip() else []
        if offered:
            note = WORKER_NOTE if state.self_hosted else SANDBOX_NOTE
            system.append(content.text_block(note))
            system += map(content.text_block, briefing.shared(state))
            if (own := briefing.own(state)) and system:
                # Other sessions of the agent have the same up to here.
                system[-1] = system[-1][:-1] + CACHE_CONTROL
            system += map(content.text_block, own)
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
