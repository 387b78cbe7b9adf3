"""HoldLease: the stream on which a brain works (lease.proto)."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import about, holding, view
from services.session.domain.admission import refuse
from services.session.domain.append import Appends, Holder, append
from services.session.domain.log import timestamp
from services.session.leases import HeldLease
from services.session.rpc import checkpoints, wire
from services.session.rpc.parts import Context, ref

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef
    from services.session.rpc.parts import Parts

# Requests that were read but not handled yet. When it is full the brain is made to wait.
_PIPELINE: Final = 64
_MESSAGE_BYTES: Final = 1024 * 1024
"""What one message carries of several answers."""

_log = structlog.get_logger("session.lease")


class LeaseRpc(SessionServiceServicer):
    """The part of the service that brains work with."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def HoldLease(  # type: ignore[override]  # grpc.aio takes coroutines that write too
        self, request_iterator: AsyncIterator[pb.HoldLeaseRequest], context: Context
    ) -> None:
        """Holds a session's lease and appends under it."""
        messages = aiter(request_iterator)
        first = await anext(messages, None)
        if first is None:
            return
        opening, *more = first.requests
        if not opening.HasField("open"):
            raise refuse("open", "the first request of the stream opens the lease")
        stream = _Stream(self._parts, ref(opening.open.session_id), context)
        await stream.serve(opening.open, more, messages)


class _Stream:
    """One lease stream, from its opening to its end."""

    def __init__(self, parts: Parts, session: SessionRef, context: Context) -> None:
        self._parts = parts
        self._ref = session
        self._context = context
        self._changed = asyncio.Event()
        self._requests: asyncio.Queue[pb.LeaseRequest] = asyncio.Queue(_PIPELINE)
        self._ended = False
        self._held = HeldLease(self._changed.set)

    async def serve(
        self,
        opening: pb.OpenLease,
        more: Sequence[pb.LeaseRequest],
        messages: AsyncIterator[pb.HoldLeaseRequest],
    ) -> None:
        """Opens the lease, sends the log, then answers what the brain sends until it ends.

        `more` is what came in one message with the opening.
        """
        with_it = [r.append for r in itertools.takewhile(lambda r: r.HasField("append"), more)]
        try:
            opened = await self._open(opening, with_it)
            await self._send_opening(opened, opening.after_seq)
            if opened.appends is not None and self._concludes(opened.appends):
                return
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(more[len(with_it) :], messages))
                await self._work()
                reading.cancel()
        finally:
            self._parts.leases.discard(self._ref, self._held)

    async def _open(
        self, request: pb.OpenLease, with_it: Sequence[pb.AppendEvents]
    ) -> holding.Opened:
        def hold(opened: holding.Opened) -> None:
            state, appends = opened.snapshot.state, opened.appends
            sent_seq = state.head_seq if appends is None else appends.sent_seq
            expires_at = state.lease_expires_at
            if appends is not None:
                expires_at = None if appends.news.released else appends.expires_at
            self._held.opened(state.generation, sent_seq, state.inbox_tail, expires_at)
            self._parts.leases.add(self._ref.session_id, self._held)

        def write(tx: Transaction) -> tuple[holding.Opened, News]:
            opened = holding.open_lease(tx, self._ref, request, with_it, self._parts.ids)
            return opened, opened.news

        # Held from the very commit on, or input that comes right behind it would go unheard.
        opened = await self._parts.commits.write(
            write, about=about.appending(self._ref, with_it), then=hold
        )
        _log.info(
            "lease_opened",
            session_id=self._ref.session_id,
            generation=self._held.generation,
            holder=request.holder,
        )
        return opened

    async def _send_opening(self, opened: holding.Opened, after_seq: int) -> None:
        state = opened.snapshot.state
        told = pb.LeaseOpened(
            generation=state.generation,
            expire_time=timestamp(state.lease_expires_at or 0),
            session=view.session(opened.snapshot),
            head_seq=state.head_seq,
            input=opened.input,
            previews_wanted=self._parts.feed.wants_previews(self._ref.session_id),
            time=timestamp(opened.snapshot.now),
        )
        events, position = opened.first, after_seq
        if opened.formats:
            position = await self._add_checkpoint(told, opened)
            events = await self._slice(position, state.head_seq)
        message = pb.HoldLeaseResponse(responses=[pb.LeaseResponse(opened=told)])
        while events:
            # As it is stored: a log may be long, and it is the brain that looks into it.
            piece = wire.repeated(pb.LogSlice.EVENTS_FIELD_NUMBER, events)
            message.responses.add().log.MergeFromString(piece)
            position += len(events)
            if position < state.head_seq:
                await self._context.write(message)
                message = pb.HoldLeaseResponse()
            events = await self._slice(position, state.head_seq)
        answers = [] if opened.appends is None else _acknowledgements(opened.appends)
        await self._send(answers, message)

    async def _add_checkpoint(self, told: pb.LeaseOpened, opened: holding.Opened) -> int:
        """Adds what an earlier brain has folded, if there is any; answers up to where that is."""
        found = await self._parts.checkpoints.load(self._ref, opened.formats)
        if found is None or found.seq > told.head_seq:
            return 0
        told.checkpoint.CopyFrom(checkpoints.message(found))
        _log.info(
            "checkpoint_given",
            session_id=self._ref.session_id,
            seq=found.seq,
            head_seq=told.head_seq,
            bytes=len(found.data),
        )
        return found.seq

    async def _slice(self, after: int, upto: int) -> list[bytes]:
        if after >= upto:
            return []
        return await self._parts.store.read(
            lambda tx: holding.next_slice(tx, self._ref, after, upto)
        )

    async def _read(
        self, more: Iterable[pb.LeaseRequest], messages: AsyncIterator[pb.HoldLeaseRequest]
    ) -> None:
        await self._queue(more)
        async for message in messages:
            await self._queue(message.requests)
        self._ended = True
        self._changed.set()

    async def _queue(self, requests: Iterable[pb.LeaseRequest]) -> None:
        for request in requests:
            if self._requests.full():
                self._changed.set()
            await self._requests.put(request)
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
            if news := self._news():
                await self._send(news)
            elif ended and not requests:
                return
            elif not requests:
                await self._changed.wait()
                self._changed.clear()

    def _news(self) -> list[pb.LeaseResponse]:
        """What the brain is to be told that it has not asked for."""
        news = []
        if (waiting := self._held.take_input()) is not None:
            news.append(pb.LeaseResponse(input_waiting=waiting))
        if self._held.take_previews_wanted():
            news.append(pb.LeaseResponse(previews_wanted=pb.PreviewsWanted()))
        return news

    async def _handle(self, requests: list[pb.LeaseRequest]) -> bool:
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
                self._parts.preview(self._ref.session_id, request.preview)
            else:
                raise refuse("open", "the lease is open already")
        return bool(appends or renew) and await self._append(appends, renew=renew)

    async def _append(self, requests: list[pb.AppendEvents], *, renew: bool) -> bool:
        holder = Holder(self._ref, self._held.generation, self._held.sent_seq)

        def write(tx: Transaction) -> tuple[Appends, News]:
            result = append(tx, holder, requests, self._parts.ids)
            return result, result.news

        if requests:
            self._held.take_input()  # the acknowledgement says what waits
        self._held.begin_append()
        result = await self._parts.commits.write(write, about=about.appending(self._ref, requests))
        self._held.end_append(result.sent_seq, result.expires_at, released=result.news.released)
        responses = _acknowledgements(result)
        if renew:
            renewed = pb.LeaseRenewed(expire_time=timestamp(result.expires_at))
            responses.append(pb.LeaseResponse(renewed=renewed))
        await self._send(responses)
        return self._concludes(result)

    @staticmethod
    def _concludes(result: Appends) -> bool:
        """Whether the lease was given back. Raises what an append was refused for."""
        if result.refusal is not None:
            raise result.refusal
        return result.news.released

    async def _send(
        self, responses: Sequence[pb.LeaseResponse], message: pb.HoldLeaseResponse | None = None
    ) -> None:
        """Sends answers together, within bounds: a message costs more than what it carries.

        `message` is one that holds what comes before them.
        """
        message = message or pb.HoldLeaseResponse()
        size = message.ByteSize()
        for response in responses:
            size += response.ByteSize()
            if message.responses and size > _MESSAGE_BYTES:
                await self._context.write(message)
                message, size = pb.HoldLeaseResponse(), response.ByteSize()
            message.responses.append(response)
        if message.responses:
            await self._context.write(message)


def _acknowledgements(result: Appends) -> list[pb.LeaseResponse]:
    return [pb.LeaseResponse(appended=one) for one in result.acknowledged]
