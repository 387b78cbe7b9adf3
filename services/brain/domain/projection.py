"""The log folded into what the next step depends on.

Folding is incremental and cheap per event, and independent of how the log was cut into pieces:
`test_projection.py` holds that against generated logs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from drover.agent.v1.agent_pb2 import SessionAgent
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import RETRY_STATUS_TYPE_RETRYING, RefusalDetails
from drover.event.v1.user_event_pb2 import CONFIRMATION_RESULT_ALLOW
from services.brain.domain import budget, calls, content, errors, web, words
from services.brain.domain.context import OVERFLOW, WITHHELD
from services.brain.domain.policy import WEB_TOOLS
from services.brain.domain.state import State, Status, adopt, review
from services.brain.domain.usage import UsageTotals

if TYPE_CHECKING:
    from collections.abc import Callable

    from drover.event.v1.span_event_pb2 import ModelUsage
    from services.brain.domain.calls import Call

CONTINUE: Final = (
    "[Your reply was cut off at the output limit. Continue from exactly where it stopped.]"
)
"""What the model is told after a reply that `max_tokens` cut off."""

EMPTY: Final = "[The message was empty.]"
"""Stands for a message in which the API would find nothing."""

MAX_CONTINUATIONS: Final = 3
"""Replies in a row that may be cut off and continued before the turn ends as it is."""


def project(state: State, event: Event, at: float) -> None:
    """Folds the next event of the log. `at` is Unix time, used where the event has no stamp."""
    if state.copied_seq and event.seq > state.copied_seq:
        state.usage, state.copied_seq = UsageTotals(), 0
    name = event.WhichOneof("payload")
    fold = _FOLDS.get(name)
    if fold is None or ((thread_id := event.thread_id) and thread_id != state.thread_id):
        return
    if name in _TIMED:
        if event.HasField("processed_at"):
            stamp = event.processed_at
            at = stamp.seconds + stamp.nanos / 1e9
        state.usage.latest = at
    fold(state, event, at)


def correct(state: State, event: Event) -> None:
    """Folds an answer that entered the log before a result that was folded ahead of its append.

    The first result of a call counts, so the answer takes the result's place.
    """
    call = state.calls.get(calls.answered_by(event))
    if call is None or call.result is None:
        project(state, event, 0.0)
        return
    before = call.result
    answer = calls.answer_in(event)
    call.resolve(event.id, answer.content, is_error=answer.is_error)
    _shown(state, call, event)
    state.transcript.replace(before, call.result)


def _user_message(state: State, event: Event, _at: float) -> None:
    words.remember(state.words, words.USER, words.spoken(event.user_message.content))
    state.links.user(event.user_message.content)
    blocks = content.blocks(event.user_message.content) or [content.text_block(EMPTY)]
    if any(call.open for call in state.calls.values()):
        state.deferred.extend(blocks)
        return
    state.instructions.withdraw(state.transcript)
    if not state.needs_model:
        state.transcript.begin_turn()
        state.instructions.begin_turn()
        state.requests = 0
    state.transcript.add("user", *blocks)
    state.needs_model = True
    state.refusal = None


def _system_message(state: State, event: Event, _at: float) -> None:
    parts = [part.text for part in event.system_message.content if part.text.strip()]
    words.remember(state.words, words.OPERATOR, "\n".join(parts))
    state.instructions.add(map(content.text_block, parts))


def _user_interrupt(state: State, _event: Event, _at: float) -> None:
    state.interrupted = True
    state.needs_model = False


def _confirmation(state: State, event: Event, _at: float) -> None:
    answer = event.user_tool_confirmation
    if answer.deny_message:
        words.remember(state.words, words.USER, answer.deny_message)
    if call := state.calls.get(answer.tool_use_id):
        allowed = answer.result == CONFIRMATION_RESULT_ALLOW
        if allowed and call.asked and state.servers.allowed(call.server, call.tool):
            review(state)
        call.confirm(allowed=allowed, deny_message=answer.deny_message)


def _result(state: State, event: Event, _at: float) -> None:
    call = state.calls.get(calls.answered_by(event))
    if call is None or call.result is not None:
        return
    answer = calls.answer_in(event)
    call.resolve(event.id, answer.content, is_error=answer.is_error)
    _shown(state, call, event)
    results = [call.result for call in state.calls.values()]
    # In the model's order, however the results came: the same log gives the same bytes.
    finished = [result for result in results if result is not None]
    if len(finished) == len(results):
        state.transcript.add("user", *finished, *state.deferred)
        state.deferred = []


def _shown(state: State, call: Call, event: Event) -> None:
    """Keeps the URLs that a result shows, where they count, and counts searches."""
    if event.HasField("user_custom_tool_result"):
        state.links.client(call.name, event.user_custom_tool_result.content)
    elif call.web is not None and not event.agent_tool_result.is_error:
        # An error says no more than what the model has asked for itself.
        state.links.server(call.name, event.agent_tool_result.content)
        state.usage.searches += call.name == web.SEARCH


def _thinking(state: State, event: Event, _at: float) -> None:
    thought = event.agent_thinking
    if thought.redacted_data:
        state.response.append(content.redacted_thinking(thought.redacted_data))
    elif thought.signature:
        # Without its signature the API would refuse it.
        state.response.append(content.thinking(thought.thinking, thought.signature))


def _message(state: State, event: Event, _at: float) -> None:
    state.response.extend(content.blocks(event.agent_message.content))


def _tool_use(state: State, event: Event, _at: float) -> None:
    custom = state.permissions.by_name
    use = event.agent_tool_use
    call = calls.from_tool_use(event.id, use, custom, self_hosted=state.self_hosted)
    if call.name in WEB_TOOLS:
        web.browse(call, state.agent.tools, state.links)
    _call(state, call)


def _mcp_tool_use(state: State, event: Event, _at: float) -> None:
    use = event.agent_mcp_tool_use
    unreachable = state.servers.unreachable(use.mcp_server_name)
    _call(state, calls.from_mcp_tool_use(event.id, use, unreachable=unreachable))


def _custom_tool_use(state: State, event: Event, _at: float) -> None:
    use = event.agent_custom_tool_use
    _call(state, calls.from_custom_tool_use(event.id, use, self_hosted=state.self_hosted))


def _call(state: State, call: Call) -> None:
    state.response.append(content.tool_use(call.model_call_id, call.name, call.arguments))
    state.calls[call.id] = call
    if call.name not in state.called:
        state.called.append(call.name)
        if not state.permissions.by_name:
            # Without tools, the prefix names those that the conversation has calls of.
            state.prefix = b""


def _request_start(state: State, event: Event, _at: float) -> None:
    if state.request:
        state.side_request = event.id
        return
    state.request = event.id
    if event.span_model_request_start.HasField("mcp"):
        listing = event.span_model_request_start.mcp
        state.servers.take(listing)
        if listing.servers:
            review(state)
    state.instructions.place(state.transcript)
    state.context.summary = None
    state.response = []
    state.calls = {}


def _request_end(state: State, event: Event, _at: float) -> None:
    end = event.span_model_request_end
    used, reason = end.model_usage, end.stop_reason
    state.usage.add(used, state.agent.model.id)
    if state.side_request and end.model_request_start_id == state.side_request:
        state.side_request = ""
        return
    state.request = state.side_request = ""
    response, state.response = state.response, []
    context = state.context
    compacting, context.compacting = context.compacting, False
    if end.is_error:
        state.calls = {}
        context.summary = None
        if reason == OVERFLOW:
            context.overflow()
            return
        state.lost += 1
        if reason == WITHHELD:
            state.transcript.withhold()
        return
    state.failures = state.lost = 0
    if compacting or context.summary is not None:
        # The harness puts it in its place.
        context.summary = context.summary or ""
        return
    context.told(_sent(used), state.transcript.weight)
    context.due = False
    state.requests += 1
    if reason == "refusal":
        _refused(state, end.stop_details)
    else:
        _replied(state, response, reason)


def _replied(state: State, response: list[bytes], reason: str) -> None:
    # The API takes no assistant message that ends in a thought (a reply cut off while thinking).
    while response and _is_thought(response[-1]):
        response.pop()
    if response:
        state.transcript.add("assistant", *response)
    if reason != "max_tokens":
        state.continuations = 0
    state.needs_model = bool(state.calls) or reason == "pause_turn"
    if reason == OVERFLOW:
        state.context.overflow()
        state.needs_model = True
        if response and not state.calls:
            state.transcript.add("user", content.text_block(CONTINUE))
    if reason == "max_tokens" and not state.calls:
        state.continuations += 1
        if state.continuations <= MAX_CONTINUATIONS:
            state.transcript.add("user", content.text_block(CONTINUE))
            state.needs_model = True


def _refused(state: State, details: str) -> None:
    # What was refused must leave the context, or everything after it is refused too.
    state.transcript.drop_turn()
    state.instructions.drop_turn()
    state.calls = {}
    state.needs_model = False
    state.refusal = RefusalDetails()
    if details:
        state.refusal.CopyFrom(_refusal_details(details))


def _running(state: State, _event: Event, at: float) -> None:
    state.status = Status.RUNNING
    state.usage.run(at)


def _rescheduled(state: State, _event: Event, at: float) -> None:
    state.status = Status.RESCHEDULING
    state.usage.rest(at)


def _idle(state: State, event: Event, at: float) -> None:
    reason = event.session_status_idle.stop_reason
    state.status = Status.IDLE
    state.usage.rest(at)
    state.servers.asked = False
    state.told = []
    if reason.HasField("requires_action"):
        return
    state.interrupted = False
    state.refusal = None
    state.failures = state.lost = 0
    state.at_budget = reason.HasField("budget_reached")
    if not state.at_budget:
        # What a budget stops goes on where it was once there is more.
        state.needs_model = False
        state.context.cramped = 0
        state.requests = state.continuations = 0


def _terminated(state: State, _event: Event, at: float) -> None:
    state.status = Status.TERMINATED
    state.usage.rest(at)


def _error(state: State, event: Event, _at: float) -> None:
    error = event.session_error.error
    if error.retry_status.beside:
        state.told.append(errors.key(error))
    elif error.retry_status.type == RETRY_STATUS_TYPE_RETRYING and state.lost:
        state.lost -= 1
        state.failures += 1
        state.retry_after = error.retry_status.asked_ms / 1000


def _usage(state: State, event: Event, at: float) -> None:
    state.usage.settle(event.session_usage.usage.active_seconds, at)


def _updated(state: State, event: Event, _at: float) -> None:
    changed = event.session_updated
    if event.seq > state.copied_seq or not event.seq:
        if changed.HasField("budget"):
            state.budget = budget.cap_of(changed.budget)
        elif changed.budget_removed:
            state.budget = None
    if changed.HasField("agent"):
        updated = SessionAgent()
        updated.CopyFrom(event.session_updated.agent)
        if not updated.metadata:
            updated.metadata.update(state.agent.metadata)
        adopt(state, updated)


def _compacted(state: State, event: Event, _at: float) -> None:
    state.context.summary = event.agent_thread_context_compacted.summary


def _sent(usage: ModelUsage) -> int:
    """The tokens of a request's prompt, however they were billed."""
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def _is_thought(block: bytes) -> bool:
    return block.startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"'))


def _refusal_details(text: str) -> RefusalDetails:
    try:
        details = json.loads(text)
    except ValueError:
        return RefusalDetails()
    if not isinstance(details, dict):
        return RefusalDetails()
    return RefusalDetails(
        category=_string(details.get("category")), explanation=_string(details.get("explanation"))
    )


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


_FOLDS: Final[dict[str | None, Callable[[State, Event, float], None]]] = {
    "user_message": _user_message,
    "system_message": _system_message,
    "user_interrupt": _user_interrupt,
    "user_tool_confirmation": _confirmation,
    "user_custom_tool_result": _result,
    "user_tool_result": _result,
    "agent_tool_result": _result,
    "agent_mcp_tool_result": _result,
    "agent_thinking": _thinking,
    "agent_message": _message,
    "agent_tool_use": _tool_use,
    "agent_mcp_tool_use": _mcp_tool_use,
    "agent_custom_tool_use": _custom_tool_use,
    "agent_thread_context_compacted": _compacted,
    "span_model_request_start": _request_start,
    "span_model_request_end": _request_end,
    "session_status_running": _running,
    "session_status_rescheduled": _rescheduled,
    "session_status_idle": _idle,
    "session_status_terminated": _terminated,
    "session_error": _error,
    "session_usage": _usage,
    "session_updated": _updated,
}

# A brain that takes over a long session folds it whole: stamps are only looked at where they count.
_TIMED: Final = frozenset(
    {
        "agent_tool_result",
        "agent_mcp_tool_result",
        "span_model_request_end",
        "session_status_running",
        "session_status_rescheduled",
        "session_status_idle",
        "session_status_terminated",
        "session_usage",
    }
)
