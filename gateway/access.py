"""Who may make which request: the one place where that is decided, for every route.

A route says in the contract which kinds of key it takes (`MethodRules.keys`), and its path what it
is about. An API key opens what its scopes say of its workspace, an environment's key that
environment and its sessions, a work item's token that item, its session, and the memory stores and
skills of that. What is not a worker's answers as if it were not there (ENDPOINTS §0, SEMANTICS
§18).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
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
from gateway import beta, scopes
from gateway.auth import Caller, UnknownKeyError, check_workspace
from gateway.transcode.shape import ContractError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from google.protobuf.message import Message
    from starlette.datastructures import Headers

    from drover.api.v1.annotations_pb2 import MethodRules
    from gateway.auth import ApiKeys, Token
    from gateway.guesses import Guesses
    from gateway.stored_keys import StoredKeys
    from gateway.transcode.routes import Route
    from gateway.workers import Workers

API_ONLY: Final = frozenset({KEY_KIND_API})

_NAMES: Final = {
    KEY_KIND_API: "API keys",
    KEY_KIND_ENVIRONMENT: "environment keys",
    KEY_KIND_WORK_ITEM: "work items' tokens",
}
_NAMED: Final = frozenset({"environment_id", "session_id", "memory_store_id", "skill_id"})
_LENT: Final = frozenset({"memory_store_id", "skill_id"})
_LATEST: Final = "latest"
_RESULTS: Final = frozenset({"user_tool_result", "user_custom_tool_result"})


@dataclass(frozen=True, slots=True)
class Terms:
    """What a route asks of who calls.

    A key of one of the `kinds`, which has `scope` or one that opens as much if it is an API key.
    If they are not empty, the beta name `beta` or `other_beta`. `writes` says that it may change
    what its path names.
    """

    kinds: frozenset[KeyKind.ValueType] = API_ONLY
    scope: str = scopes.ADMIN
    beta: str = ""
    other_beta: str = ""
    writes: bool = False
    opened_by: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "opened_by", scopes.opening(self.scope))


def terms(route: Route) -> Terms:
    """What a route asks. Raises as `kinds` and `scopes.needed`."""
    rules = route.rules
    return Terms(
        kinds(rules, route.template),
        scopes.needed(route),
        rules.beta,
        rules.other_beta,
        writes=route.verb != "GET",
    )


def kinds(rules: MethodRules, template: str) -> frozenset[KeyKind.ValueType]:
    """The kinds of key that a route takes.

    Raises `ContractError` if workers may call one that is about nothing of theirs.
    """
    taken = frozenset(rules.keys) or API_ONLY
    if taken - API_ONLY and not any(f"{{{name}}}" in template for name in _NAMED):
        msg = f"{template}: workers may call it, but it names nothing of theirs"
        raise ContractError(msg)
    return taken


class Access:
    """Lets callers in, or refuses them."""

    def __init__(
        self, keys: ApiKeys, stored: StoredKeys, workers: Workers, guesses: Guesses
    ) -> None:
        self._keys = keys
        self._stored = stored
        self._workers = workers
        self._guesses = guesses

    async def identify(self, headers: Headers, peer: str) -> Caller:
        """Whose request it is, which came from the address `peer`.

        Raises UNAUTHENTICATED without a valid key, and RATE_LIMITED when too many came from there
        that are not.
        """
        who = self._keys.caller(headers)
        if isinstance(who, Caller):
            return who
        return await self._guesses.find(peer, who.digest, partial(self._holder, who))

    async def admit(
        self, caller: Caller, headers: Headers, terms: Terms, path: Mapping[str, str]
    ) -> None:
        """Lets a caller in to what a path names.

        Raises PERMISSION_DENIED for a request that names another workspace than its key's, for a
        key of a kind or with scopes that do not open the route, and for a worker's change of what
        its session may only read; NOT_FOUND for what is not a worker's; and as `beta.check`.
        """
        check_workspace(headers, caller.workspace_id)
        _check_kind(caller.kind, terms.kinds)
        if caller.kind == KEY_KIND_API:
            _check_scopes(caller, terms)
        beta.check(headers, terms.beta, terms.other_beta)
        if caller.kind == KEY_KIND_API:
            return
        with call_context(CallContext(caller.workspace_id, current_call().request_id)):
            await self._check_path(caller, path)
            if not _LENT.isdisjoint(path):
                await self._check_lent(caller, path, writes=terms.writes)

    async def confirm(self, caller: Caller) -> None:
        """Raises UNAUTHENTICATED when a caller that was let in would not be now."""
        _check_running(await self._holder(caller.token))

    async def _holder(self, token: Token) -> Caller:
        if token.kind == KEY_KIND_API:
            return await self._stored.caller(token)
        if token.kind:
            return await self._workers.caller(token)
        raise UnknownKeyError("the API key is not valid")

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

    async def _check_lent(self, caller: Caller, path: Mapping[str, str], *, writes: bool) -> None:
        """Checks what a worker's session has been lent: stores, and skills of its agent."""
        _check_running(caller)
        lent = await self._workers.lent_to(caller.workspace_id, caller.session_id)
        if (store_id := path.get("memory_store_id")) is not None:
            if store_id not in lent.stores:
                raise DroverError(Reason.NOT_FOUND, f"no memory store {store_id!r}")
            if writes and not lent.stores[store_id]:
                raise DroverError(
                    Reason.PERMISSION_DENIED, f"the session may only read {store_id!r}"
                )
        if (skill_id := path.get("skill_id")) is not None:
            if skill_id not in lent.skills:
                raise DroverError(Reason.NOT_FOUND, f"no skill {skill_id!r}")
            if (version := path.get("version")) not in {_LATEST, *lent.skills[skill_id]}:
                raise DroverError(
                    Reason.NOT_FOUND, f"skill {skill_id!r} has no version {version!r}"
                )


def check_request(caller: Caller, message: Message) -> None:
    """Raises PERMISSION_DENIED for events that are not a worker's to send.

    What a result shows it brings along: a file that it names could be anybody's in the workspace.
    """
    if caller.kind == KEY_KIND_API or not isinstance(message, EmitEventsRequest):
        return
    for index, event in enumerate(message.events):
        kind = event.WhichOneof("payload") or ""
        if kind not in _RESULTS:
            raise DroverError(
                Reason.PERMISSION_DENIED,
                f"events.{index}.type: {_NAMES[caller.kind]} may send only user.tool_result and "
                "user.custom_tool_result",
            )
        for place, block in enumerate(getattr(event, kind).content):
            if block.image.source.HasField("file") or block.document.source.HasField("file"):
                raise DroverError(
                    Reason.PERMISSION_DENIED,
                    f"events.{index}.content.{place}.source.type: {_NAMES[caller.kind]} may show "
                    "no files by their ids; base64 is taken",
                )


def _check_kind(kind: KeyKind.ValueType, taken: Collection[KeyKind.ValueType]) -> None:
    if kind not in taken:
        others = " or ".join(name for other, name in _NAMES.items() if other in taken)
        raise DroverError(
            Reason.PERMISSION_DENIED, f"this route is not for {_NAMES[kind]}, but for {others}"
        )


def _check_scopes(caller: Caller, terms: Terms) -> None:
    if terms.opened_by and caller.scopes.isdisjoint(terms.opened_by):
        raise DroverError(
            Reason.PERMISSION_DENIED,
            f"the scopes of this API key do not open this route: it needs {terms.scope}",
        )


def _check_running(caller: Caller) -> None:
    if caller.has_stopped:
        raise DroverError(Reason.UNAUTHENTICATED, "the work item's token is not valid: it stopped")
