"""Listing sessions, forwards and backwards."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from chassis.context import current_call
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import view
from services.session.domain.admission import refuse
from services.session.domain.lifecycle import Snapshot
from services.session.domain.ports import SessionQuery
from services.session.domain.session import Status
from services.session.rpc.parts import time_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.session.domain.ports import Transaction
    from services.session.rpc.parts import Parts

_DEFAULT_LIMIT: Final = 20


class ListsRpc(SessionServiceServicer):
    """The part of the service that lists sessions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ListSessions(
        self, request: pb.ListSessionsRequest, _context: object
    ) -> pb.ListSessionsResponse:
        """Lists sessions."""
        query = _query(request, current_call().workspace_id)
        scope = (query, request.deployment_id)
        backwards = False
        if request.HasField("page"):
            values = self._parts.cursors.open(scope, request.page)
            backwards, created_at, session_id = bool(values[0]), values[1], values[2]
            query = dataclasses.replace(query, key=(int(created_at or 0), str(session_id)))
        if request.HasField("deployment_id"):
            return pb.ListSessionsResponse()  # no session has one yet
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        query = dataclasses.replace(
            query, limit=limit + 1, descending=query.descending is not backwards
        )

        def read(tx: Transaction) -> list[Snapshot]:
            now = tx.now()
            return [Snapshot(state, details, now) for state, details in tx.sessions(query)]

        found = await self._parts.store.read(read)
        page, more = found[:limit], len(found) > limit
        if backwards:
            page.reverse()
        response = pb.ListSessionsResponse(data=[view.session(snapshot) for snapshot in page])
        if page and (more or backwards):
            response.next_page = self._cursor(scope, page[-1], backwards=False)
        if page and (more if backwards else request.HasField("page")):
            response.prev_page = self._cursor(scope, page[0], backwards=True)
        return response

    def _cursor(self, scope: object, place: Snapshot, *, backwards: bool) -> str:
        state = place.state
        return self._parts.cursors.seal(scope, [backwards, state.created_at, state.id])


def _query(request: pb.ListSessionsRequest, workspace_id: str) -> SessionQuery:
    if request.HasField("agent_version") and not request.HasField("agent_id"):
        raise refuse("agent_version", "a version is given together with agent_id")
    return SessionQuery(
        workspace_id=workspace_id,
        limit=0,
        descending=request.order != pb.SORT_ORDER_ASC,
        agent_id=request.agent_id if request.HasField("agent_id") else None,
        agent_version=request.agent_version if request.HasField("agent_version") else None,
        created=time_range(
            gt=request.created_at_gt if request.HasField("created_at_gt") else None,
            gte=request.created_at_gte if request.HasField("created_at_gte") else None,
            lt=request.created_at_lt if request.HasField("created_at_lt") else None,
            lte=request.created_at_lte if request.HasField("created_at_lte") else None,
        ),
        include_archived=request.include_archived,
        statuses=statuses(request.statuses),
        memory_store_id=request.memory_store_id if request.HasField("memory_store_id") else None,
    )


def statuses(wanted: Iterable[int]) -> tuple[Status, ...]:
    """The statuses of a filter, in one order. Raises INVALID_ARGUMENT for one that is none."""
    numbers = sorted(set(wanted))
    known = {int(status) for status in Status}
    if not known.issuperset(numbers):
        raise refuse("statuses", "the value is not known")
    return tuple(Status(number) for number in numbers)
