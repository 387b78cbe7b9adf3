"""What a client may send to a session now (EVENTS §1)."""

from __future__ import annotations

from binascii import a2b_base64
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from drover.event.v1 import user_event_pb2
from services.session.domain.event import ASKED, FOR_WORKER, CallKind
from services.session.domain.ports import CallState
from services.session.domain.session import Status, Stop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drover.agent.v1 import agent_pb2
    from drover.event.v1 import content_pb2, event_pb2
    from services.session.domain.ports import Call
    from services.session.domain.session import SessionState

# Types of the contract that this release does not run, and what to say of each.
_NOT_RUNNING = {
    "user_define_outcome": "user.define_outcome is not supported by this release",
}
_CLIENT_TYPES = frozenset(
    {
        "user_message",
        "user_interrupt",
        "user_tool_confirmation",
        "user_custom_tool_result",
        "user_tool_result",
        "system_message",
    }
)
_ACCOMPANIED = frozenset({"user_message", "user_tool_result", "user_custom_tool_result"})
"""What a system message may go with."""
_MESSAGE_BLOCKS = frozenset({"text", "image", "document"})
_RESULT_BLOCKS = _MESSAGE_BLOCKS | {"search_result"}


def refuse(path: str, text: str) -> DroverError:
    """INVALID_ARGUMENT that names the path."""
    return DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")


def check_type(
    event: event_pb2.Event, name: str, event_type: str, path: str, *, self_hosted: bool = False
) -> None:
    """Raises INVALID_ARGUMENT for an event that no client may send, or that nothing would run.

    `self_hosted` says of the session's environment that workers run its tools.
    """
    if (text := _NOT_RUNNING.get(name)) is not None:
        raise refuse(f"{path}.type", text)
    if name not in _CLIENT_TYPES:
        raise refuse(f"{path}.type", f"{event_type or 'an unknown type'} is not sent by clients")
    if name == "user_message":
        _check_blocks(event.user_message.content, _MESSAGE_BLOCKS, f"{path}.content")
        _check_full(event.user_message.content, f"{path}.content")
    elif name == "user_custom_tool_result":
        _check_blocks(event.user_custom_tool_result.content, _RESULT_BLOCKS, f"{path}.content")
    elif name == "user_tool_result":
        if not self_hosted:
            raise refuse(f"{path}.type", "user.tool_result needs a self_hosted environment")
        _check_blocks(event.user_tool_result.content, _RESULT_BLOCKS, f"{path}.content")


def _check_blocks(
    blocks: Iterable[content_pb2.ContentBlock], allowed: frozenset[str], path: str
) -> None:
    for index, block in enumerate(blocks):
        kind = block.WhichOneof("block") or ""
        if kind not in allowed:
            raise refuse(f"{path}.{index}.type", f"{kind} blocks are not accepted here")
        if kind in {"image", "document"}:
            _check_source(getattr(block, kind).source, f"{path}.{index}.source")


def _check_full(blocks: Iterable[content_pb2.ContentBlock], path: str) -> None:
    for index, block in enumerate(blocks):
        kind = block.WhichOneof("block") or ""
        if kind in {"image", "document"}:
            source = getattr(block, kind).source
            if source.WhichOneof("source") == "base64" and not source.base64.data:
                raise refuse(f"{path}.{index}.source.data", "a value is required")


def _check_source(source: content_pb2.ImageSource | content_pb2.DocumentSource, path: str) -> None:
    kind = source.WhichOneof("source")
    # What no model can read would stay in the history and fail every later turn.
    if kind == "base64" and not _is_base64(source.base64.data):
        raise refuse(f"{path}.data", "must be base64, padded and without line breaks")


def _is_base64(text: str) -> bool:
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return len(text) % 4 == 0


def check_open(state: SessionState) -> None:
    """Raises ARCHIVED for a session that is not to be changed any more."""
    if state.archived_at is not None:
        raise DroverError(Reason.ARCHIVED, "the session is archived: create another to go on")
    if state.ended:
        raise DroverError(Reason.ARCHIVED, "the session is terminated: create another to go on")


def check_message(state: SessionState, path: str) -> None:
    """Raises INVALID_ARGUMENT while the session waits for answers and nothing interrupts that."""
    waits = state.activity.status is Status.IDLE and state.stop is Stop.REQUIRES_ACTION
    if waits and state.unanswered and not state.waiting.interrupts:
        raise refuse(
            path,
            f"the session waits for the answers to {state.unanswered} tool call(s): "
            "send them, or a user.interrupt, first",
        )


def check_system_message(
    state: SessionState, before: event_pb2.Event | None, path: str, *, last: bool
) -> None:
    """Raises INVALID_ARGUMENT for a system message in a place where none may be.

    It ends its request, behind the event that it goes with (`before`). Alone it is taken by a
    session at rest, which waits for no answer.
    """
    if not last:
        raise refuse(path, "a system.message is the last event of its request")
    if before is not None and before.WhichOneof("payload") in _ACCOMPANIED:
        return
    if before is not None:
        raise refuse(
            path,
            "a system.message goes directly behind the user.message, the user.tool_result or the "
            "user.custom_tool_result that it accompanies, or alone",
        )
    if state.stop is Stop.REQUIRES_ACTION and state.unanswered and not state.busy:
        raise refuse(
            path,
            "while the session waits for answers, a system.message goes behind a "
            "user.tool_result or a user.custom_tool_result",
        )
    if state.busy:
        raise refuse(
            path, "while the session runs, a system.message goes behind the event it accompanies"
        )


def check_model(agent: agent_pb2.SessionAgent, path: str, *, takes_system: bool) -> None:
    """Raises INVALID_ARGUMENT where the agent's model takes no system message along the way."""
    if not takes_system:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"{path}.type: {agent.model.id} takes no system messages mid-conversation",
            error_code="model_does_not_support_mid_conversation_system",
        )


def check_interrupt(event: event_pb2.Event, state: SessionState, path: str) -> None:
    """Raises INVALID_ARGUMENT for an interrupt of a thread that the session does not have."""
    interrupt = event.user_interrupt
    named = interrupt.HasField("session_thread_id")
    if named and interrupt.session_thread_id != state.primary_thread_id:
        raise refuse(f"{path}.session_thread_id", "the session has no such thread")


def check_confirmation(event: event_pb2.Event, call: Call | None, path: str) -> None:
    """Raises INVALID_ARGUMENT unless the call was asked for, answered already or not.

    Nor is a reason for a denial taken with a permission.
    """
    confirmation = event.user_tool_confirmation
    denies = confirmation.result == user_event_pb2.CONFIRMATION_RESULT_DENY
    if confirmation.HasField("deny_message") and not denies:
        raise refuse(f"{path}.deny_message", "is for denials only")
    path = f"{path}.tool_use_id"
    if call is None or call.kind is CallKind.CUSTOM:
        raise refuse(path, "the session has no such tool call")
    if call.kind not in ASKED:
        raise refuse(path, "the call was not evaluated to ask, so there is nothing to confirm")


def check_custom_result(call: Call | None, path: str) -> None:
    """Raises INVALID_ARGUMENT unless the call is one of a custom tool, answered or not."""
    if call is None or call.kind is not CallKind.CUSTOM:
        raise refuse(f"{path}.custom_tool_use_id", "the session has no such call of a custom tool")


def check_tool_result(call: Call | None, path: str) -> None:
    """Raises INVALID_ARGUMENT unless the call is one that a worker may answer, or may have."""
    path = f"{path}.tool_use_id"
    if call is None or call.kind not in FOR_WORKER:
        raise refuse(path, "the session has no such call for a worker")
    if call.kind is CallKind.ASK_SELF_HOSTED and call.state is CallState.OPEN:
        raise refuse(path, "the call waits for a user.tool_confirmation first")
