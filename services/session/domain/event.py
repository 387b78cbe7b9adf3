"""What the session service knows of an event: its type, the call it opens or answers, its class."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

from drover.api.v1 import annotations_pb2 as api
from drover.event.v1 import agent_event_pb2 as agent
from drover.event.v1 import event_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping


class InputClass(IntEnum):
    """The kinds of event that wait in the inbox until a brain takes them."""

    INTERRUPT = 1
    CONFIRMATION = 2
    MESSAGE = 3


class CallKind(IntEnum):
    """How a tool call is answered: by the hands, after a person's word, or by the client.

    One of a self-hosted environment is answered by a worker of that, perhaps after a person's word.
    """

    ALLOW = 1
    ASK = 2
    CUSTOM = 3
    DENY = 4
    SELF_HOSTED = 5
    ASK_SELF_HOSTED = 6


ASKED = frozenset({CallKind.ASK, CallKind.ASK_SELF_HOSTED})
"""The kinds of call that a person is asked about."""

FOR_WORKER = frozenset({CallKind.SELF_HOSTED, CallKind.ASK_SELF_HOSTED})
"""The kinds of call that a worker answers, unless a person forbids it."""

WAIT_FOR_CLIENT = ASKED | FOR_WORKER | {CallKind.CUSTOM}
"""The kinds of call that somebody outside has to say something about."""

SANDBOX_TOOLS = frozenset({"bash", "read", "write", "edit", "glob", "grep"})
"""The tools that a worker runs in a self-hosted environment; all others stay with the brain."""

_HOSTED = {CallKind.ALLOW: CallKind.SELF_HOSTED, CallKind.ASK: CallKind.ASK_SELF_HOSTED}

INBOX: Mapping[str, InputClass] = {
    "user_interrupt": InputClass.INTERRUPT,
    "user_tool_confirmation": InputClass.CONFIRMATION,
    "user_message": InputClass.MESSAGE,
    "system_message": InputClass.MESSAGE,
}
"""Variants that wait. `user_custom_tool_result` and `user_tool_result` are processed on receipt
instead, and so is a `system_message` that goes with no `user_message`."""

# Variants that only clients send, or that only this service writes.
_NOT_A_BRAINS = frozenset({"session_deleted", "session_updated"})

_RESULT_FIELDS: Mapping[str, str] = {
    "agent_tool_result": "tool_use_id",
    "agent_mcp_tool_result": "mcp_tool_use_id",
    "user_custom_tool_result": "custom_tool_use_id",
    "user_tool_result": "tool_use_id",
}

ANSWERS = frozenset({"user_tool_result", "user_custom_tool_result"})
"""Results that clients and workers give."""

_PERMISSIONS: Mapping[int, CallKind] = {
    agent.EVALUATED_PERMISSION_UNSPECIFIED: CallKind.ALLOW,
    agent.EVALUATED_PERMISSION_ALLOW: CallKind.ALLOW,
    agent.EVALUATED_PERMISSION_ASK: CallKind.ASK,
    agent.EVALUATED_PERMISSION_DENY: CallKind.DENY,
}


@cache
def tags() -> Mapping[str, str]:
    """Event types by variant: `user_message` is `user.message`."""
    fields = pb.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
    return {field.name: field.GetOptions().Extensions[api.json].tag for field in fields}


@cache
def listable_types() -> frozenset[str]:
    """The types that a listing may be filtered by: all but `session.deleted` (EVENTS §0)."""
    return frozenset(tags().values()) - {"session.deleted"}


def variant(event: pb.Event) -> str:
    """Name of the variant that is set. Empty for one that this release does not know."""
    return event.WhichOneof("payload") or ""


def event_type(event: pb.Event) -> str:
    """The event's type as the API writes it; empty for one that this release does not know."""
    return tags().get(variant(event), "")


def is_clients(name: str) -> bool:
    """Whether a variant is one that clients send (EVENTS §1)."""
    return name.startswith("user_") or name == "system_message"


def is_brains(name: str) -> bool:
    """Whether a lease holder may append a variant.

    It settles a worker's call that it stops as the worker would.
    """
    if name in ANSWERS:
        return True
    return bool(name) and not is_clients(name) and name not in _NOT_A_BRAINS


def opened_call(event: pb.Event, name: str, *, self_hosted: bool) -> CallKind | None:
    """The kind of call that the event opens; its id is the event's.

    `self_hosted` says that the workers of the session's environment run the sandbox's tools.
    """
    if name == "agent_tool_use":
        use = event.agent_tool_use
        kind = _PERMISSIONS.get(use.evaluated_permission, CallKind.ALLOW)
        return _HOSTED.get(kind, kind) if self_hosted and use.name in SANDBOX_TOOLS else kind
    if name == "agent_mcp_tool_use":
        return _PERMISSIONS.get(event.agent_mcp_tool_use.evaluated_permission, CallKind.ALLOW)
    return CallKind.CUSTOM if name == "agent_custom_tool_use" else None


def result_of(event: pb.Event, name: str) -> str | None:
    """The call whose result the event is."""
    field = _RESULT_FIELDS.get(name)
    return None if field is None else getattr(getattr(event, name), field)
