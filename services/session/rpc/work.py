"""WorkService: the work of self-hosted environments, as its workers and its owner see it."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from chassis.context import current_call
from drover.work.v1 import work_pb2
from drover.work.v1 import work_service_pb2 as pb
from drover.work.v1.work_service_pb2_grpc import WorkServiceServicer
from services.session.domain import queue
from services.session.domain.log import timestamp
from services.session.domain.ports import About
from services.session.domain.work import RECLAIM_MICROS
from services.session.domain.work_ports import Queue, WorkStats
from services.session.rpc.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionState
    from services.session.domain.work import WorkItem
    from services.session.rpc.parts import Context, Parts
    from services.session.workers import Doorbell, Pollers

    M = TypeVar("M", bound=Message)

_DEFAULT_LIMIT: Final = 20
_MILLI: Final = 1000
_TOKEN_BYTES: Final = 32

_log = structlog.get_logger("session.work")


def new_token() -> str:
    """The token of a work item: nobody guesses it."""
    return f"drover_work_{secrets.token_urlsafe(_TOKEN_BYTES)}"


class WorkRpc(WorkServiceServicer):
    """WorkService. A lease is of `lease_seconds` unless its worker asks for another length."""

    def __init__(
        self,
        parts: Parts,
        doorbell: Doorbell,
        pollers: Pollers,
        *,
        lease_seconds: int,
        tokens: Callable[[], str] = new_token,
    ) -> None:
        self._parts = parts
        self._doorbell = doorbell
        self._pollers = pollers
        self._lease_seconds = lease_seconds
        self._tokens = tokens

    async def GetWork(self, request: pb.GetWorkRequest, _context: object) -> pb.GetWorkResponse:
        """Reads an item."""
        item = await self._find(request.environment_id, request.work_id)
        return pb.GetWorkResponse(work=view(item))

    async def UpdateWork(
        self, request: pb.UpdateWorkRequest, context: Context
    ) -> pb.UpdateWorkResponse:
        """Changes an item's metadata."""

        def patch(item: WorkItem, _state: SessionState, _now: int) -> None:
            queue.patch(item, request.metadata)

        def answer(item: WorkItem) -> pb.UpdateWorkResponse:
            return pb.UpdateWorkResponse(work=view(item))

        return await self._change(request, context, patch, pb.UpdateWorkResponse, answer)

    async def ListWork(self, request: pb.ListWorkRequest, _context: object) -> pb.ListWorkResponse:
        """Lists the items of an environment, newest first."""
        wanted, cursors = _queue(request.environment_id), self._parts.cursors
        key = None
        if request.HasField("page"):
            created_at, work_id = cursors.open(("work", wanted), request.page)
            key = int(created_at or 0), str(work_id)
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        found = await self._parts.store.read(lambda tx: tx.listed_work(wanted, limit + 1, key))
        page = found[:limit]
        response = pb.ListWorkResponse(data=[view(item) for item in page])
        if len(found) > limit:
            last = page[-1]
            response.next_page = cursors.seal(("work", wanted), [last.created_at, last.id])
        return response

    async def PollWork(self, request: pb.PollWorkRequest, _context: object) -> pb.PollWorkResponse:
        """Hands out the item that has waited longest, if there is one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + request.block_ms / _MILLI
        wanted = _queue(request.environment_id)
        if request.worker_id:
            await self._pollers.note(request.environment_id, request.worker_id)
        reclaim = RECLAIM_MICROS
        if request.HasField("reclaim_older_than_ms"):
            reclaim = request.reclaim_older_than_ms * _MILLI
        with self._doorbell.listening(wanted.environment_id) as rung:
            while True:
                rung.clear()
                handed = await self._hand_out(wanted, request.worker_id, reclaim)
                # The last look is behind the wait: not of all news everyone hears.
                if handed is not None or loop.time() >= until:
                    return pb.PollWorkResponse(work=handed)
                try:
                    async with asyncio.timeout_at(until):
                        await rung.wait()
                except TimeoutError:
                    continue

    async def _hand_out(self, wanted: Queue, worker_id: str, reclaim: int) -> work_pb2.Work | None:
        """An item with its secret. Who finds nothing has not kept any other from writing."""
        store = self._parts.store
        waiting = await store.read(lambda tx: tx.waiting_work(wanted, tx.now() - reclaim, 1))
        if not waiting:
            return None
        first, token = waiting[0], self._tokens()

        def hand_out(tx: Transaction) -> WorkItem | None:
            return queue.poll(tx, wanted, first, token, worker_id=worker_id, reclaim_micros=reclaim)

        item = await store.write(hand_out, about=About(first.session))
        if item is None:
            return None
        _tell("work_handed_out", item)
        return view(item, token)

    async def AckWork(self, request: pb.AckWorkRequest, context: Context) -> pb.AckWorkResponse:
        """Takes an item off the queue."""

        def acknowledge(item: WorkItem, _state: SessionState, now: int) -> None:
            item.acknowledge(now, self._lease_seconds)

        def answer(item: WorkItem) -> pb.AckWorkResponse:
            return pb.AckWorkResponse(work=view(item))

        return await self._change(request, context, acknowledge, pb.AckWorkResponse, answer)

    async def HeartbeatWork(
        self, request: pb.HeartbeatWorkRequest, context: Context
    ) -> pb.HeartbeatWorkResponse:
        """Prolongs the lease of an item."""
        expected, ttl, extended = None, self._lease_seconds, False
        if request.HasField("expected_last_heartbeat"):
            expected = request.expected_last_heartbeat
        if request.HasField("desired_ttl_seconds"):
            ttl = request.desired_ttl_seconds

        def beat(item: WorkItem, _state: SessionState, now: int) -> None:
            nonlocal extended
            extended = item.beat(expected, now, ttl)

        def answer(item: WorkItem) -> pb.HeartbeatWorkResponse:
            return pb.HeartbeatWorkResponse(
                last_heartbeat=item.last_heartbeat,
                lease_extended=extended,
                state=_state(item),
                ttl_seconds=item.ttl_seconds,
            )

        return await self._change(request, context, beat, pb.HeartbeatWorkResponse, answer)

    async def GetWorkStats(
        self, request: pb.GetWorkStatsRequest, _context: object
    ) -> pb.GetWorkStatsResponse:
        """What waits in an environment's queue."""
        wanted = _queue(request.environment_id)
        await self._parts.registry.environment(request.environment_id)

        def read(tx: Transaction) -> tuple[WorkStats, int]:
            since = tx.now() - queue.POLLING_MICROS
            return tx.work_stats(wanted), tx.pollers(wanted.environment_id, since)

        found, workers = await self._parts.store.read(read)
        stats = work_pb2.WorkQueueStats(
            depth=found.depth,
            pending=found.pending,
            oldest_queued_at=_time(found.oldest_queued_at),
            workers_polling=workers,
        )
        return pb.GetWorkStatsResponse(stats=stats)

    async def StopWork(self, request: pb.StopWorkRequest, context: Context) -> pb.StopWorkResponse:
        """Stops an item: at once, or by its worker at its next heartbeat."""
        stop = partial(queue.stop, force=request.force)

        def answer(item: WorkItem) -> pb.StopWorkResponse:
            return pb.StopWorkResponse(work=view(item))

        return await self._change(request, context, stop, pb.StopWorkResponse, answer)

    async def AuthenticateWorkItem(
        self, request: pb.AuthenticateWorkItemRequest, _context: object
    ) -> pb.AuthenticateWorkItemResponse:
        """What a work item's token opens."""
        item = await self._parts.store.read(lambda tx: queue.authenticate(tx, request.digest))
        return pb.AuthenticateWorkItemResponse(
            workspace_id=item.session.workspace_id,
            environment_id=item.environment_id,
            session_id=item.session.session_id,
            work_id=item.id,
            state=_state(item),
        )

    async def _find(self, environment_id: str, work_id: str) -> WorkItem:
        """An item as it is now. Raises NOT_FOUND."""
        wanted = _queue(environment_id)
        return await self._parts.store.read(lambda tx: queue.get(tx, wanted, work_id))

    async def _change(
        self,
        request: pb.UpdateWorkRequest
        | pb.AckWorkRequest
        | pb.HeartbeatWorkRequest
        | pb.StopWorkRequest,
        context: Context,
        fn: Callable[[WorkItem, SessionState, int], None],
        kind: type[M],
        answer: Callable[[WorkItem], M],
    ) -> M:
        """Changes an item by `fn`, once. Raises NOT_FOUND, and what `fn` raises."""
        found = await self._find(request.environment_id, request.work_id)
        call = Once(self._parts, context, kind, lambda _: found.session.session_id)
        changed = found

        def write(tx: Transaction) -> tuple[M, News]:
            nonlocal changed
            changed, news = queue.change(tx, found, fn)
            return answer(changed), news

        given, new = await call.commit(write, about=About(found.session))
        if new and changed.state is not found.state:
            _tell(f"work_{changed.state.name.lower()}", changed)
        return given


def view(item: WorkItem, token: str = "") -> work_pb2.Work:
    """An item as it is answered; with its secret for whoever is given the token."""
    work = work_pb2.Work(
        id=item.id,
        acknowledged_at=_time(item.acknowledged_at),
        created_at=timestamp(item.created_at),
        environment_id=item.environment_id,
        latest_heartbeat_at=_time(item.heartbeat_at),
        metadata=item.metadata,
        started_at=_time(item.started_at),
        state=_state(item),
        stop_requested_at=_time(item.stop_requested_at),
        stopped_at=_time(item.stopped_at),
    )
    work.data.session.id = item.session.session_id
    if token:
        work.secret = _sealed(token)
    return work


def _sealed(token: str) -> str:
    """A token as workers look for it in the secret of an item (SEMANTICS §18)."""
    return base64.urlsafe_b64encode(json.dumps({"sessions_token": token}).encode()).decode()


def _queue(environment_id: str) -> Queue:
    return Queue(current_call().workspace_id, environment_id)


def _state(item: WorkItem) -> work_pb2.WorkState.ValueType:
    return work_pb2.WorkState.ValueType(item.state)


def _time(micros: int | None) -> Timestamp | None:
    return None if micros is None else timestamp(micros)


def _tell(event: str, item: WorkItem) -> None:
    _log.info(event, work_id=item.id, session_id=item.session.session_id, worker=item.worker_id)
