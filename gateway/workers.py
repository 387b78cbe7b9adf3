"""Whose keys the tokens of workers are, and which sessions are theirs: asked of the services."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_ENVIRONMENT, KEY_KIND_WORK_ITEM
from drover.environment.v1 import environment_key_service_pb2 as keys_pb
from drover.session.v1 import session_service_pb2 as session_pb
from drover.work.v1 import work_pb2, work_service_pb2
from gateway.auth import Caller, UnknownKeyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from drover.session.v1.session_pb2 import Session
    from gateway.auth import Token
    from gateway.upstream import Unary, Upstream

_SESSIONS: Final = 10_000
_READ_ONLY: Final = "read_only"
_SERVED: Final = (
    (keys_pb.DESCRIPTOR, "EnvironmentKeyService", "AuthenticateEnvironmentKey"),
    (work_service_pb2.DESCRIPTOR, "WorkService", "AuthenticateWorkItem"),
    (session_pb.DESCRIPTOR, "SessionService", "GetSession"),
)


@dataclass(frozen=True, slots=True)
class Lent:
    """What a session may use that is not its own, for as long as it is there.

    Memory `stores`, by id, with whether it may write them; the versions of its agent's `skills`.
    """

    stores: Mapping[str, bool]
    skills: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Session:
    environment_id: str
    lent: Lent


class Workers:
    """Knows workers by their tokens' digests.

    It asks about a token every time, so that one that was revoked opens nothing from that moment
    on. Only what never changes is remembered: the environment that a session runs in, and what it
    was lent when it was created.
    """

    def __init__(self, environment_key: Unary, work_item: Unary, session: Unary) -> None:
        self._environment_key = environment_key
        self._work_item = work_item
        self._session = session
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()

    @classmethod
    def of(cls, upstream: Upstream) -> Workers:
        """Over the services behind the gateway."""
        return cls(
            *(
                upstream.unary(file.services_by_name[service].methods_by_name[method])
                for file, service, method in _SERVED
            )
        )

    async def caller(self, token: Token) -> Caller:
        """Who holds a token. Raises UNAUTHENTICATED for one that opens nothing."""
        digest = token.digest
        try:
            if token.kind == KEY_KIND_ENVIRONMENT:
                request = keys_pb.AuthenticateEnvironmentKeyRequest(digest=digest)
                key = await _answer(self._environment_key, request)
                return Caller(
                    key.workspace_id,
                    digest,
                    KEY_KIND_ENVIRONMENT,
                    key.environment_id,
                    key_id=key.key_id,
                )
            asked = work_service_pb2.AuthenticateWorkItemRequest(digest=digest)
            item = await _answer(self._work_item, asked)
        except DroverError as error:
            if error.reason is Reason.UNAUTHENTICATED:
                raise invalid(token.kind) from None
            raise
        return Caller(
            item.workspace_id,
            digest,
            KEY_KIND_WORK_ITEM,
            item.environment_id,
            item.session_id,
            item.work_id,
            has_stopped=item.state == work_pb2.WORK_STATE_STOPPED,
        )

    async def environment_of(self, workspace_id: str, session_id: str) -> str:
        """The environment of a session of the running call's workspace. Raises NOT_FOUND."""
        return (await self._known(workspace_id, session_id)).environment_id

    async def lent_to(self, workspace_id: str, session_id: str) -> Lent:
        """What a session of the running call's workspace was lent. Raises NOT_FOUND."""
        return (await self._known(workspace_id, session_id)).lent

    async def _known(self, workspace_id: str, session_id: str) -> _Session:
        known = workspace_id, session_id
        if known in self._sessions:
            self._sessions.move_to_end(known)
            return self._sessions[known]
        request = session_pb.GetSessionRequest(session_id=session_id)
        session = (await _answer(self._session, request)).session
        found = self._sessions[known] = _Session(session.environment_id, _lent(session))
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return found


def _lent(session: Session) -> Lent:
    skills: dict[str, set[str]] = {}
    for skill in session.agent.skills:
        reference = getattr(skill, skill.WhichOneof("skill") or "custom")
        skills.setdefault(reference.skill_id, set()).add(reference.version)
    stores = [one.memory_store for one in session.resources if one.HasField("memory_store")]
    return Lent(
        stores={store.memory_store_id: store.access != _READ_ONLY for store in stores},
        skills={skill_id: frozenset(versions) for skill_id, versions in skills.items()},
    )


def invalid(kind: int) -> UnknownKeyError:
    """UNAUTHENTICATED for a worker's token that opens nothing."""
    name = "environment key" if kind == KEY_KIND_ENVIRONMENT else "work item's token"
    return UnknownKeyError(f"the {name} is not valid")


async def _answer(call: Unary, request: Message) -> Any:  # noqa: ANN401  # of the call's own type
    answer, _ = await call(request)
    return answer
