"""OperationsService: what operators ask about sessions."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.context import current_call
from drover.session.v1 import operations_service_pb2 as pb
from drover.session.v1.operations_service_pb2_grpc import OperationsServiceServicer
from services.session.domain.log import timestamp
from services.session.domain.view import STATUSES

if TYPE_CHECKING:
    from services.session.domain.ports import SessionStore, Stalled, Transaction
    from services.session.domain.session import SessionDetails, SessionState

_DEFAULT_LIMIT: Final = 100


class OperationsRpc(OperationsServiceServicer):
    """OperationsService."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def ListActiveSessions(
        self, request: pb.ListActiveSessionsRequest, _context: object
    ) -> pb.ListActiveSessionsResponse:
        """Lists the sessions that work, or should, the longest first."""
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        workspace_id = current_call().workspace_id

        def read(tx: Transaction) -> pb.ListActiveSessionsResponse:
            found = tx.stalled(tx.now(), limit + 1, workspace_id)
            answer = pb.ListActiveSessionsResponse(has_more=len(found) > limit)
            for one in found[:limit]:
                state = tx.state(one.ref)
                if state is not None:
                    answer.data.append(_view(one, state, tx.details(state.id)))
            return answer

        return await self._store.read(read)


def _view(one: Stalled, state: SessionState, details: SessionDetails) -> pb.ActiveSession:
    return pb.ActiveSession(
        id=state.id,
        agent_id=state.agent_id,
        agent_name=details.agent.name,
        title=details.title,
        status=STATUSES[state.status],
        created_at=timestamp(state.created_at),
        last_event_at=timestamp(one.since or state.head_at or state.updated_at),
        last_event=one.last_type or None,
        brain=one.holder if one.held else None,
        waits_for=one.waits_for,
    )
