"""Exporting sessions, and importing them again elsewhere: for operators."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2, transfer_pb2
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import exporting, importing, queue, view
from services.session.domain.admission import refuse
from services.session.domain.copies import STEP_BYTES, STEP_EVENTS
from services.session.domain.lifecycle import Snapshot
from services.session.domain.work import needs_worker
from services.session.rpc.parts import Context, ref

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from drover.event.v1 import event_pb2
    from services.session.domain.copies import CopyTransaction
    from services.session.domain.importing import Import
    from services.session.domain.session import SessionState
    from services.session.rpc.parts import Parts

    Record = transfer_pb2.SessionRecord

_IDLE_SECONDS: Final = 60.0
"""How long an import waits for its next records."""

_log = structlog.get_logger("session.transfer")


class TransferRpc(SessionServiceServicer):
    """The part of the service through which whole sessions come and go."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ExportSession(  # type: ignore[override]  # grpc.aio takes coroutines that write too
        self, request: pb.ExportSessionRequest, context: Context
    ) -> None:
        """Everything of a session, as it is at this moment."""
        session, store = ref(request.session_id), self._parts.store
        export = await store.read(lambda tx: exporting.begin(tx, session))
        await self._send(context, [transfer_pb2.SessionRecord(session=export.snapshot)])
        while export.next is not None:
            again = partial(exporting.advance, ref=session, export=export)
            records, export = await store.read(again)
            await self._send(context, records)
        await self._send(context, [exporting.end(export)])
        _log.info("session_exported", session_id=request.session_id, events=export.snapshot.events)

    async def _send(self, context: Context, records: Sequence[Record]) -> None:
        try:
            async with asyncio.timeout(self._parts.stuck_seconds):
                await context.write(pb.ExportSessionResponse(records=records))
        except TimeoutError:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED, "the export was not read for too long"
            ) from None

    async def ImportSession(
        self, request_iterator: AsyncIterator[pb.ImportSessionRequest], _context: object
    ) -> pb.ImportSessionResponse:
        """A session as it was exported: all of it, or none."""
        copying, records = self._parts.copying, _records(request_iterator)
        first = await anext(records, None)
        if first is None or not first.HasField("session"):
            raise refuse("records", "the first record is the session without its events")
        workspace_id = current_call().workspace_id
        await self._check_workers(first.session)

        def begin(tx: CopyTransaction) -> Import:
            begun = importing.begin(first.session, workspace_id, tx.now())
            tx.begin(begun.state, begun.details, begun.threads)
            return begun

        async with copying.making(first.session.session_id, begin) as begun:
            done, end = await self._fill(begun, records)
            if await anext(records, None) is not None:
                raise refuse("records", "nothing comes behind the end")
            # It may have been deleted here, and what still came for it be too late until now.
            await self._parts.files.reopen(ref(first.session.session_id))

            def publish(tx: CopyTransaction) -> SessionState:
                state = importing.finish(done, end)
                tx.publish(state)
                if needs_worker(state):
                    home = done.details.environment_id
                    tx.add_work(queue.made(state, home, self._parts.ids, tx.now()))
                return state

            state = await copying.step(publish)
        _log.info("session_imported", session_id=state.id, events=state.head_seq)
        snapshot = Snapshot(state, done.details, done.now)
        return pb.ImportSessionResponse(session=view.session(snapshot))

    async def _check_workers(self, session: transfer_pb2.SessionSnapshot) -> None:
        """Raises INVALID_ARGUMENT where no worker could ever poll for the session's work."""
        ended = session.status == session_pb2.SESSION_STATUS_TERMINATED
        if ended or not session.environment.HasField("self_hosted"):
            return
        path = "session.environment_id"
        try:
            found = await self._parts.registry.environment(session.environment_id)
        except DroverError as error:
            if error.reason is not Reason.ENVIRONMENT_NOT_FOUND:
                raise
            raise refuse(path, "its workers poll an environment that is not there") from None
        if not found.config.HasField("self_hosted"):
            raise refuse(path, "no workers poll for this environment: it is not self_hosted")

    async def _fill(
        self, done: Import, records: AsyncIterator[Record]
    ) -> tuple[Import, transfer_pb2.SessionRecordsEnd]:
        """Takes events until their end, as many together as a step may."""
        batch = _Batch()
        async for record in records:
            kind = record.WhichOneof("record")
            if kind == "session" or (kind == "event" and batch.waits):
                raise refuse("records", "the session comes first, then its log, then its inbox")
            if batch.full or kind != batch.kind:
                done = await self._store(done, batch)
                batch = _Batch(waits=kind == "waiting")
            if kind == "end":
                return done, record.end
            batch.add(record.waiting if kind == "waiting" else record.event)
        raise refuse("records", "the export is not whole: its end is missing")

    async def _store(self, done: Import, batch: _Batch) -> Import:
        if not batch.events:
            return done
        take = importing.wait if batch.waits else importing.add
        return await self._parts.copying.step(lambda tx: take(tx, done, batch.events))


class _Batch:
    """Events that are stored together. `waits` says that they are the inbox's."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.events: list[event_pb2.Event] = []
        self._bytes = 0

    @property
    def kind(self) -> str:
        """What the records are called that it takes."""
        return "waiting" if self.waits else "event"

    @property
    def full(self) -> bool:
        """Whether it is as much as a step takes."""
        return len(self.events) >= STEP_EVENTS or self._bytes >= STEP_BYTES

    def add(self, event: event_pb2.Event) -> None:
        """Takes one more."""
        self.events.append(event)
        self._bytes += event.ByteSize()


async def _records(messages: AsyncIterator[pb.ImportSessionRequest]) -> AsyncIterator[Record]:
    """The records of a stream, one by one. Raises DEADLINE_EXCEEDED when it stalls."""
    following = aiter(messages)
    while True:
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                message = await anext(following, None)
        except TimeoutError:
            raise DroverError(Reason.DEADLINE_EXCEEDED, "the import brought nothing more") from None
        if message is None:
            return
        for record in message.records:
            yield record
