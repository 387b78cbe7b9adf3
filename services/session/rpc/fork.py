"""Forking sessions."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import fork, view
from services.session.domain.lifecycle import Snapshot
from services.session.domain.resources import kinds
from services.session.rpc.giving import giving
from services.session.rpc.once import Once
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from chassis.ids import IdSource
    from services.session.domain.copies import CopyTransaction
    from services.session.domain.fork import Fork
    from services.session.rpc.parts import Context, Parts

_log = structlog.get_logger("session.fork")


class ForkRpc(SessionServiceServicer):
    """The part of the service that makes sessions from sessions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Context
    ) -> pb.ForkSessionResponse:
        """Makes a new session from a session's log up to an event."""
        parts, source = self._parts, ref(request.session_id)
        call = Once(parts, context, pb.ForkSessionResponse, lambda answer: answer.session.id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        event_id = request.event_id if request.HasField("event_id") else None
        planned = await parts.store.read(lambda tx: fork.plan(tx, source, event_id, parts.ids))
        # As with a new session: what comes of a fork that fails is swept away.
        repositories = [one.id for one in kinds.repositories(planned.details.resources)]
        await parts.vaults.copy(source.session_id, planned.state.id, repositories)
        try:
            async with giving(parts, planned.state.ref, planned.copies, some=True):
                answer = await self._fork(_Step(planned, call, parts.ids))
        except _ForkedBeforeError as before:
            call.tell()
            return before.answer
        _log.info(
            "session_forked",
            session_id=answer.session.id,
            source_id=request.session_id,
            seq=planned.upto,
        )
        return answer

    async def _fork(self, step: _Step) -> pb.ForkSessionResponse:
        """Takes the steps. Raises `_ForkedBeforeError` when another attempt has done so before."""
        copying, session_id = self._parts.copying, step.planned.state.id
        async with copying.making(session_id, step.begin) as begun:
            at, answer = begun
            while answer is None:
                at, answer = await copying.step(partial(step.go_on, at=at))
            if answer.session.id != session_id:  # what was begun here is nobody's
                raise _ForkedBeforeError(answer)
        return answer


class _ForkedBeforeError(Exception):
    """Another attempt at the same request was faster."""

    def __init__(self, answer: pb.ForkSessionResponse) -> None:
        super().__init__(answer.session.id)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class _Step:
    """The steps of a fork: each answers how far it got, and the last one the call."""

    planned: Fork
    call: Once[pb.ForkSessionResponse]
    ids: IdSource

    def begin(self, tx: CopyTransaction) -> tuple[int, pb.ForkSessionResponse | None]:
        if (before := self.call.before(tx)) is not None:
            return 0, before
        tx.begin(self.planned.state, self.planned.details, self.planned.threads)
        return self._advance(tx, 0)

    def go_on(self, tx: CopyTransaction, at: int) -> tuple[int, pb.ForkSessionResponse | None]:
        if (before := self.call.before(tx)) is not None:
            return at, before
        return self._advance(tx, at)

    def _advance(self, tx: CopyTransaction, at: int) -> tuple[int, pb.ForkSessionResponse | None]:
        progress = fork.advance(tx, self.planned, at, self.ids)
        if progress.state is None:
            return progress.at, None
        created_at = self.planned.state.created_at
        snapshot = Snapshot(progress.state, self.planned.details, created_at)
        answer = pb.ForkSessionResponse(session=view.session(snapshot))
        self.call.keep(tx, answer)
        return progress.at, answer
