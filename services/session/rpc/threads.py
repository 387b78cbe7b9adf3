"""Threads and their logs."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import lifecycle, view
from services.session.domain.listing import EventsQuery, thread_not_found
from services.session.domain.session import Status
from services.session.rpc.events import list_page
from services.session.rpc.lists import statuses
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from collections.abc import Collection

    from drover.session.v1 import session_pb2
    from services.session.rpc.parts import Parts

_DEFAULT_LIMIT: Final = 1000


class ThreadsRpc(SessionServiceServicer):
    """The part of the service that is about threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def GetThread(
        self, request: pb.GetThreadRequest, _context: object
    ) -> pb.GetThreadResponse:
        """Reads a thread."""
        for thread in await self._threads(request.session_id):
            if thread.id == request.thread_id:
                return pb.GetThreadResponse(thread=thread)
        raise thread_not_found(request.thread_id)

    async def ListThreads(
        self, request: pb.ListThreadsRequest, _context: object
    ) -> pb.ListThreadsResponse:
        """Lists a session's threads, the primary one first."""
        wanted = statuses(request.statuses)
        threads = await self._threads(request.session_id, wanted or tuple(Status))
        scope = ("threads", ref(request.session_id), wanted)
        start = 0
        if request.HasField("page"):
            last = self._parts.cursors.open(scope, request.page)[0]
            start = next((n + 1 for n, one in enumerate(threads) if one.id == last), len(threads))
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        response = pb.ListThreadsResponse(data=threads[start : start + limit])
        if start + limit < len(threads):
            response.next_page = self._parts.cursors.seal(scope, [response.data[-1].id])
        return response

    async def GetThreadEvents(
        self, request: pb.GetThreadEventsRequest, _context: object
    ) -> pb.GetThreadEventsResponse:
        """The log of one thread."""
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        session = ref(request.session_id)
        events, next_page = await list_page(
            self._parts,
            session,
            EventsQuery(limit, thread_id=request.thread_id),
            scope=("thread events", session, request.thread_id),
            page=request.page if request.HasField("page") else None,
        )
        return pb.GetThreadEventsResponse(data=events, next_page=next_page)

    async def _threads(
        self, session_id: str, wanted: Collection[Status] = tuple(Status)
    ) -> list[session_pb2.Thread]:
        session = ref(session_id)
        snapshot, threads = await self._parts.store.read(
            lambda tx: (lifecycle.read(tx, session), tx.threads(session_id))
        )
        return [
            view.thread(thread, snapshot.state, snapshot.details, snapshot.now)
            for thread in threads
            if view.thread_status(thread, snapshot.state) in wanted
        ]
