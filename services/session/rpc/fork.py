"""Forking sessions."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import fork, view
from services.session.domain.lifecycle import Snapshot
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from services.session.domain.copies import CopyTransaction
    from services.session.domain.fork import Progress
    from services.session.rpc.parts import Parts

_log = structlog.get_logger("session.fork")


class ForkRpc(SessionServiceServicer):
    """The part of the service that makes sessions from sessions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ForkSession(
        self, request: pb.ForkSessionRequest, _context: object
    ) -> pb.ForkSessionResponse:
        """Makes a new session from a session's log up to an event."""
        parts, source = self._parts, ref(request.session_id)
        event_id = request.event_id if request.HasField("event_id") else None
        planned = await parts.store.read(lambda tx: fork.plan(tx, source, event_id, parts.ids))
        session_id = planned.state.id

        def begin(tx: CopyTransaction) -> Progress:
            tx.begin(planned.state, planned.details, planned.threads)
            return fork.advance(tx, planned, 0, parts.ids)

        progress = await parts.copying.step(begin)
        async with parts.copying.making(session_id):
            while progress.state is None:
                again = partial(fork.advance, fork=planned, at=progress.at, ids=parts.ids)
                progress = await parts.copying.step(again)
        _log.info(
            "session_forked",
            session_id=session_id,
            source_id=request.session_id,
            seq=planned.upto,
        )
        snapshot = Snapshot(progress.state, planned.details, planned.state.created_at)
        return pb.ForkSessionResponse(session=view.session(snapshot))
