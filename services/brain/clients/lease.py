"""The lease on a session: one stream of appends, which outlives the connections that carry it.

A broken connection is opened again with the generation. The log since the last acknowledgement
then tells which of the appends under way had been committed: those are settled from it, the rest is
sent again under the same event ids.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from drover.session.v1.lease_pb2 import (
    Appended,
    AppendEvents,
    HoldLeaseRequest,
    HoldLeaseResponse,
    InputWaiting,
    LeaseRequest,
    LeaseResponse,
    OpenLease,
    RenewLease,
)
from services.brain.clients.failures import translated
from services.brain.clients.outbox import Outbox
from services.brain.clients.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from chassis.clock import Clock
    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.checkpoint_pb2 import Checkpoint, CheckpointFormat
    from drover.session.v1.preview_pb2 import Preview
    from drover.session.v1.session_pb2 import Session

RENEW_EVERY: Final = 3.0
"""Seconds between renewals (ARCHITECTURE §4)."""

SILENCE: Final = 10.0
"""Seconds without a word, renewals being answered, after which a connection counts as broken."""

GIVE_UP_AFTER: Final = 60.0
"""Seconds without a connection after which a brain stops waiting for the session service."""

_PAUSES: Final = (0.02, 0.05, 0.1, 0.2)
_LONGEST_PAUSE: Final = 0.5

# The connection broke, its far end went away, or it had no room just now, as on a full disk:
# nothing is said about the lease, and what was not kept may be sent again.
_BROKEN: Final = frozenset(
    {
        Reason.UNAVAILABLE,
        Reason.RESOURCE_EXHAUSTED,
        Reason.CANCELLED,
        Reason.INTERNAL,
        Reason.DEADLINE_EXCEEDED,
    }
)

_log = structlog.get_logger("brain.lease")

_Call = Any  # grpc.aio.StreamStreamCall; its type parameters are not known at run time


class LogReceiver(Protocol):
    """What is told of the log as it becomes known, in the log's order."""

    @property
    def head(self) -> int:
        """The last position of the log that is known."""
        ...

    @property
    def checkpoint_formats(self) -> Sequence[CheckpointFormat]:
        """The checkpoints that would do for the beginning of the log."""
        ...

    def opened(self, session: Session, checkpoint: Checkpoint | None) -> bool:
        """The lease is held. The log behind `head` follows: behind the checkpoint if there is one.

        False for one that will not do: then the log is asked for again, and this called again.
        """
        ...

    def logged(self, events: Sequence[Event]) -> None:
        """The next events of the log as it was when the lease was opened."""
        ...

    def appended(self, append: AppendEvents, ack: Appended) -> None:
        """An append is durable, or a release was refused."""
        ...

    def input_changed(self, waiting: InputWaiting) -> None:
        """What waits in the inbox."""
        ...


@dataclass(slots=True)
class _Pending:
    append: AppendEvents
    future: asyncio.Future[Appended]


class Lease:
    """A held lease. Its appends are pipelined and acknowledged in order."""

    def __init__(
        self,
        open_stream: Callable[[], Any],
        clock: Clock,
        session_id: str,
        holder: str,
        receiver: LogReceiver,
    ) -> None:
        self._open_stream = open_stream
        self._clock = clock
        self._session_id = session_id
        self._holder = holder
        self._receiver = receiver
        self._outbox = Outbox()
        self._arrived: deque[LeaseResponse] = deque()
        self._pending: deque[_Pending] = deque()
        self._next_request = 1
        self._heard = 0.0
        # What the log's clock said when ours had been running for 0 s, once it is known.
        self._epoch: float | None = None
        self._begun = False
        self._released = False
        self.generation = 0
        self.session: Session
        self.waiting = InputWaiting()
        self.ready = asyncio.Event()

    def append(self, append: AppendEvents) -> asyncio.Future[Appended]:
        """Sends an append; the future holds its acknowledgement."""
        future = self._register(append)
        self._outbox.put(LeaseRequest(append=append))
        return future

    def anticipate(self, append: AppendEvents) -> asyncio.Future[Appended]:
        """Sends an append together with the request for the lease: they share a transaction.

        Before `keep` only.
        """
        return self._register(append)

    def preview(self, preview: Preview) -> None:
        """Sends a glimpse of an event to come, or drops it when the connection is behind."""
        self._outbox.put_preview(preview)

    def now(self) -> float:
        """Unix time by the clock that the log is stamped with, for what has no stamp yet."""
        if self._epoch is None:
            return self._clock.now().timestamp()
        return self._epoch + self._clock.monotonic()

    @property
    def unacknowledged(self) -> int:
        """How many appends are under way."""
        return len(self._pending)

    async def keep(self) -> None:
        """Takes the lease and keeps it until it is released. Raises `DroverError`.

        LEASE_HELD: another brain is at work. LEASE_LOST: this one must stop and emit nothing.
        """
        attempt = 0
        deadline: float | None = None
        while not self._released:
            try:
                await self._connected()
            except DroverError as error:
                if error.reason not in _BROKEN or not self.generation:
                    raise
                _heed_cancellation()
                now = self._clock.monotonic()
                if deadline is None or self._heard > deadline - GIVE_UP_AFTER:
                    attempt, deadline = 0, now + GIVE_UP_AFTER
                if now >= deadline:
                    raise DroverError(Reason.LEASE_LOST, "the session service is gone") from error
                _log.info("lease_reconnecting", reason=error.reason, attempt=attempt)
                pause = _PAUSES[attempt] if attempt < len(_PAUSES) else _LONGEST_PAUSE
                await asyncio.sleep(max(pause, error.retry_after or 0))
                attempt += 1

    def _register(self, append: AppendEvents) -> asyncio.Future[Appended]:
        append.request_id = self._next_request
        self._next_request += 1
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(append, future))
        return future

    async def _connected(self) -> None:
        call: _Call = self._open_stream()
        try:
            if not await self._open(call):
                return
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._outbox.drain(call.write))
                renewer = tasks.create_task(self._renew())
                await self._read(call)
                writer.cancel()
                renewer.cancel()
        except ExceptionGroup as group:
            raise _cause(group) from group
        finally:
            call.cancel()

    async def _open(self, call: _Call) -> bool:
        """Takes the lease and reads the log; False where that is to be done again."""
        first = not self._begun
        formats = self._receiver.checkpoint_formats if first else ()
        request = OpenLease(
            session_id=self._session_id,
            holder=self._holder,
            generation=self.generation,
            after_seq=self._receiver.head,
            checkpoint_formats=formats,
        )
        requests = [LeaseRequest(open=request)]
        if not self.generation:
            requests += [LeaseRequest(append=pending.append) for pending in self._pending]
        self._arrived.clear()
        with translated("the session service"):
            await call.write(HoldLeaseRequest(requests=requests))
        opened = (await self._next(call)).opened
        self.generation, self.session = opened.generation, opened.session
        self._outbox.wanted = opened.previews_wanted
        if opened.HasField("time"):
            told = opened.time.seconds + opened.time.nanos / 1e9
            self._epoch = told - self._clock.monotonic()
        if first:
            given = opened.checkpoint if formats and opened.HasField("checkpoint") else None
            if not self._receiver.opened(opened.session, given):
                return False
            self._begun = True
        head = self._receiver.head
        missed: list[Event] = []
        while head < opened.head_seq:
            piece = (await self._next(call)).log.events
            head += len(piece)
            if first:
                self._receiver.logged(piece)
            else:
                missed.extend(piece)
        if not first:
            self._settle(missed, opened.input)
        self._input(opened.input)
        self.ready.set()
        return True

    def _settle(self, missed: list[Event], waiting: InputWaiting) -> None:
        """Acknowledges what `missed` shows to be committed, and queues the rest again."""
        under_way = [pending.append for pending in self._pending]
        acknowledged, rest = reconcile(under_way, missed, waiting)
        for ack in acknowledged:
            self._acknowledge(ack)
        if rest:
            self._receiver.logged(rest)
        self._outbox.restart([LeaseRequest(append=pending.append) for pending in self._pending])

    async def _read(self, call: _Call) -> None:
        while not self._released:
            response = await self._next(call)
            match response.WhichOneof("response"):
                case "appended":
                    self._acknowledge(response.appended)
                case "input_waiting":
                    self._input(response.input_waiting)
                case "previews_wanted":
                    self._outbox.wanted = True
                case _:
                    pass

    async def _next(self, call: _Call) -> LeaseResponse:
        while not self._arrived:
            with translated("the session service"):
                message = await call.read()
            if not isinstance(message, HoldLeaseResponse):  # EOF
                raise DroverError(Reason.UNAVAILABLE, "the session service ended the stream")
            self._heard = self._clock.monotonic()
            self._arrived.extend(message.responses)
        return self._arrived.popleft()

    def _acknowledge(self, ack: Appended) -> None:
        pending = self._pending.popleft()
        if pending.append.request_id != ack.request_id:
            msg = f"append {pending.append.request_id} was acknowledged as {ack.request_id}"
            raise AssertionError(msg)
        self._released = ack.released
        self._receiver.appended(pending.append, ack)
        if not pending.future.done():
            pending.future.set_result(ack)
        self._input(ack.input)

    def _input(self, waiting: InputWaiting) -> None:
        self.waiting = waiting
        self._receiver.input_changed(waiting)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            if self._clock.monotonic() - self._heard > SILENCE:
                raise DroverError(Reason.UNAVAILABLE, "the session service is silent")
            self._outbox.put(LeaseRequest(renew=RenewLease()))


@asynccontextmanager
async def held(lease: Lease, tasks: asyncio.TaskGroup) -> AsyncIterator[Lease]:
    """Keeps `lease` in `tasks` while the body runs; the body starts once the log is known."""
    keeper = tasks.create_task(lease.keep())
    try:
        await lease.ready.wait()
        yield lease
    finally:
        keeper.cancel()


def _heed_cancellation() -> None:
    """Raises `CancelledError` if the running task is to end.

    A task group whose child fails just then keeps the cancellation to itself.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _cause(group: ExceptionGroup[Exception]) -> Exception:
    """The error that says most: a mistake of ours, then the service's word, then a broken line."""

    def weight(error: Exception) -> int:
        return (1 + (error.reason in _BROKEN)) if isinstance(error, DroverError) else 0

    return min(group.exceptions, key=weight)
