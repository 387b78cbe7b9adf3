"""Who may make which request: the one place where that is decided, for every route.

A route says in the contract which kinds of key it takes (`MethodRules.keys`), and its path what it
is about. An API key opens all of its workspace, an environment's key that environment and its
sessions, a work item's token that item and its session. What is not a worker's answers as if it
were not there (ENDPOINTS §0, SEMANTICS §18).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import (
    KEY_KIND_API,
    KEY_KIND_ENVIRONMENT,
    KEY_KIND_WORK_ITEM,
    KeyKind,
)
from drover.session.v1.session_service_pb2 import EmitEventsRequest
from gateway import beta
from gateway.auth import Caller, check_workspace
from gateway.transcode.shape import ContractError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from google.protobuf.message import Message
    from starlette.datastructures import Headers

    from drover.api.v1.annotations_pb2 import MethodRules
    from gateway.auth import ApiKeys, Token
    from gateway.workers import Workers

API_ONLY: Final = frozenset({KEY_KIND_API})

_NAMES: Final = {
    KEY_KIND_API: "API keys",
    KEY_KIND_ENVIRONMENT: "environment keys",
    KEY_KIND_WORK_ITEM: "work items' tokens",
}
_SCOPES: Final = frozenset({"environment_id", "session_id"})
_RESULTS: Final = frozenset({"user_tool_result", "user_custom_tool_result"})


def kinds(rules: MethodRules, template: str) -> frozenset[KeyKind.ValueType]:
    """The kinds of key that a route takes.

    Raises `ContractError` if workers may call one that is about nothing of theirs.
    """
    taken = frozenset(rules.keys) or API_ONLY
    if taken - API_ONLY and not any(f"{{{name}}}" in template for name in _SCOPES):
        msg = f"{template}: workers may call it, but it names neither environment nor session"
        raise ContractError(msg)
    return taken


class Access:
    """Lets callers in, or refuses them."""

    def __init__(self, keys: ApiKeys, workers: Workers) -> None:
        self._keys = keys
        self._workers = workers

    def admit(
        self, headers: Headers, taken: Collection[KeyKind.ValueType], needed: str
    ) -> Caller | Token:
        """Whose request it is, or whose token is still to be asked about by `admit_worker`.

        Raises UNAUTHENTICATED without a valid key, PERMISSION_DENIED for one of a kind that is not
        among those `taken` or of another workspace than the one named, and as `beta.check`.
        """
        who = self._keys.caller(headers)
        if isinstance(who, Caller):
            _check_kind(who.kind, taken)
            beta.check(headers, needed)
        return who

    async def admit_worker(
        self,
        token: Token,
        headers: Headers,
        taken: Collection[KeyKind.ValueType],
        needed: str,
        path: Mapping[str, str],
    ) -> Caller:
        """The worker whose request it is, for something of its own.

        Raises as `admit`, and NOT_FOUND for what the path names and is not the worker's.
        """
        caller = await self._workers.caller(token)
        check_workspace(headers, caller.workspace_id)
        _check_kind(caller.kind, taken)
        beta.check(headers, needed)
        with call_context(CallContext(caller.workspace_id, current_call().request_id)):
            await self._check_path(caller, path)
        return caller

    async def confirm(self, caller: Caller) -> None:
        """Raises UNAUTHENTICATED when a worker that was let in to a session would not be now."""
        _check_running(await self._workers.caller(caller.token))

    async def _check_path(self, caller: Caller, path: Mapping[str, str]) -> None:
        if (environment_id := path.get("environment_id", home := caller.environment_id)) != home:
            raise DroverError(Reason.ENVIRONMENT_NOT_FOUND, f"no environment {environment_id!r}")
        of_item = caller.kind == KEY_KIND_WORK_ITEM
        if of_item and (work_id := path.get("work_id", caller.work_id)) != caller.work_id:
            raise DroverError(Reason.NOT_FOUND, f"work {work_id} not found")
        if (session_id := path.get("session_id")) is None:
            return
        if of_item:
            is_own = session_id == caller.session_id
        else:
            is_own = await self._workers.environment_of(caller.workspace_id, session_id) == home
        if not is_own:
            raise DroverError(Reason.NOT_FOUND, f"session {session_id} not found")
        _check_running(caller)


def check_request(caller: Caller, message: Message) -> None:
    """Raises PERMISSION_DENIED for events that are not a worker's to send."""
    if caller.kind == KEY_KIND_API or not isinstance(message, EmitEventsRequest):
        return
    for index, event in enumerate(message.events):
        if event.WhichOneof("payload") not in _RESULTS:
            raise DroverError(
                Reason.PERMISSION_DENIED,
                f"events.{index}.type: {_NAMES[caller.kind]} may send only user.tool_result and "
                "user.custom_tool_result",
            )


def _check_kind(kind: KeyKind.ValueType, taken: Collection[KeyKind.ValueType]) -> None:
    if kind not in taken:
        others = " or ".join(name for other, name in _NAMES.items() if other in taken)
        raise DroverError(
            Reason.PERMISSION_DENIED, f"this route is not for {_NAMES[kind]}, but for {others}"
        )


def _check_running(caller: Caller) -> None:
    if caller.has_stopped:
        raise DroverError(Reason.UNAUTHENTICATED, "the work item's token is not valid: it stopped")
