"""HoldLease: the stream on which a brain works (lease.proto)."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import holding, view
from services.session.domain.admission import refuse
from services.session.domain.append import Appends, Holder, append
from services.session.domain.log import timestamp
from services.session.leases import HeldLease
from services.session.rpc.parts import Context, ref

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from drover.event.v1 import event_pb2
    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef
    from services.session.rpc.parts import Parts

# Requests that were read but not handled yet. When it is full the brain is made to wait.
_PIPELINE: Final = 64

_log = structlog.get_logger("session.lease")


class LeaseRpc(SessionServiceServicer):
    """The part of the service that brains work with."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def HoldLease(  # type: ignore[override]  # grpc.aio takes coroutines that write too
        self, request_iterator: AsyncIterator[pb.HoldLeaseRequest], context: Context
    ) -> None:
        """Holds a session's lease and appends under it."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        if not first.HasField("open"):
            raise refuse("open", "the first message of the stream opens the lease")
        await _Stream(self._parts, ref(first.open.session_id), context).serve(first.open, requests)


class _Stream:
    """One lease stream, from its opening to its end."""

    def __init__(self, parts: Parts, session: SessionRef, context: Context) -> None:
        self._parts = parts
        self._ref = session
        self._context = context
        self._changed = asyncio.Event()
        self._requests: asyncio.Queue[pb.HoldLeaseRequest] = asyncio.Queue(_PIPELINE)
        self._ended = False
        self._held = HeldLease(self._changed.set)
        self._sent_seq = 0

    async def serve(
        self, request: pb.OpenLease, requests: AsyncIterator[pb.HoldLeaseRequest]
    ) -> None:
        """Opens the lease, sends the log, then answers what the brain sends until it ends."""
        try:
            opened = await self._open(request)
            await self._send_opening(opened, request.after_seq)
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(requests))
                await self._work()
                reading.cancel()
        finally:
            self._parts.leases.discard(self._ref.session_id, self._held)

    async def _open(self, request: pb.OpenLease) -> holding.Opened:
        def hold(opened: holding.Opened) -> None:
            self._held.generation = opened.snapshot.state.generation
            self._sent_seq = opened.snapshot.state.head_seq
            self._parts.leases.add(self._ref.session_id, self._held)

        def write(tx: Transaction) -> tuple[holding.Opened, News]:
            opened = holding.open_lease(tx, self._ref, request)
            return opened, opened.news

        # Held from the very commit on, or input that comes right behind it would go unheard.
        opened = await self._parts.commits.write(write, then=hold)
        _log.info(
            "lease_opened",
            session_id=self._ref.session_id,
            generation=self._held.generation,
            holder=request.holder,
        )
        return opened

    async def _send_opening(self, opened: holding.Opened, after_seq: int) -> None:
        state = opened.snapshot.state
        await self._send(
            pb.HoldLeaseResponse(
                opened=pb.LeaseOpened(
                    generation=state.generation,
                    expire_time=timestamp(state.lease_expires_at or 0),
                    session=view.session(opened.snapshot),
                    head_seq=state.head_seq,
                    input=opened.input,
                )
            )
        )
        events, position = opened.first, after_seq
        while events:
            await self._send(pb.HoldLeaseResponse(log=pb.LogSlice(events=events)))
            position = events[-1].seq
            events = await self._slice(position, state.head_seq)

    async def _slice(self, after: int, upto: int) -> list[event_pb2.Event]:
        if after >= upto:
            return []
        return await self._parts.store.read(
            lambda tx: holding.next_slice(tx, self._ref, after, upto)
        )

    async def _read(self, requests: AsyncIterator[pb.HoldLeaseRequest]) -> None:
        async for request in requests:
            await self._requests.put(request)
            self._changed.set()
        self._ended = True
        self._changed.set()

    async def _work(self) -> None:
        while True:
            if self._held.lost:
                raise DroverError(
                    Reason.LEASE_LOST, f"generation {self._held.generation} holds no lease any more"
                )
            ended = self._ended
            requests = [self._requests.get_nowait() for _ in range(self._requests.qsize())]
            if await self._handle(requests):
                return
            if (waiting := self._held.take_input()) is not None:
                await self._send(pb.HoldLeaseResponse(input_waiting=waiting))
            elif ended and not requests:
                return
            elif not requests:
                await self._changed.wait()
                self._changed.clear()

    async def _handle(self, requests: list[pb.HoldLeaseRequest]) -> bool:
        """Whether the lease was given back. Appends in a row share a transaction."""
        appends: list[pb.AppendEvents] = []
        renew = False
        for request in requests:
            if request.HasField("append"):
                appends.append(request.append)
            elif request.HasField("renew"):
                renew = True
            elif request.HasField("preview"):
                # In the order sent: what was appended before is seen before.
                if appends and await self._append(appends, renew=False):
                    return True
                appends = []
                self._parts.feed.preview(self._ref.session_id, request.preview)
            else:
                raise refuse("open", "the lease is open already")
        return bool(appends or renew) and await self._append(appends, renew=renew)

    async def _append(self, requests: list[pb.AppendEvents], *, renew: bool) -> bool:
        holder = Holder(self._ref, self._held.generation, self._sent_seq)

        def write(tx: Transaction) -> tuple[Appends, News]:
            result = append(tx, holder, requests, self._parts.ids)
            return result, result.news

        if requests:
            self._held.take_input()  # the acknowledgement says what waits
        result = await self._parts.commits.write(write)
        self._sent_seq = result.sent_seq
        for acknowledged in result.acknowledged:
            await self._send(pb.HoldLeaseResponse(appended=acknowledged))
        if renew:
            renewed = pb.LeaseRenewed(expire_time=timestamp(result.expires_at))
            await self._send(pb.HoldLeaseResponse(renewed=renewed))
        if result.refusal is not None:
            raise result.refusal
        return result.news.released

    async def _send(self, response: pb.HoldLeaseResponse) -> None:
        await self._context.write(response)
