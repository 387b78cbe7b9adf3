"""The part of SessionService that a brain sees, in memory, with faults that a test can order.

It follows `lease.proto` and ARCHITECTURE §4 as closely as a brain can tell; everything else of the
service is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import SessionUpdated
from drover.event.v1.user_event_pb2 import (
    CONFIRMATION_RESULT_ALLOW,
    CONFIRMATION_RESULT_DENY,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
    UserToolResult,
)
from drover.session.v1 import checkpoint_service_pb2, checkpoint_service_pb2_grpc
from drover.session.v1 import lease_pb2 as pb
from drover.session.v1.checkpoint_pb2 import Checkpoint
from drover.session.v1.preview_pb2 import Preview
from drover.session.v1.session_pb2 import Session
from drover.session.v1.session_service_pb2 import (
    GetEventsRequest,
    GetEventsResponse,
    GetSessionRequest,
    GetSessionResponse,
)
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.brain.domain.calls import answered_by

_CONTROL = ("user_interrupt", "user_tool_confirmation")
_ANSWERS = ("user_custom_tool_result", "user_tool_result")
_WAITS = ("requires_action", "budget_reached")


def kind(event: Event) -> str:
    return event.WhichOneof("payload") or ""


def wire_type(event: Event) -> str:
    return kind(event).replace("_", ".", 1)


class FakeSession:
    """One session: its log, its inbox, its open calls, its lease."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.log: list[Event] = []
        self.inbox: list[Event] = []
        self.calls: dict[str, str] = {}
        self.previews: list[Preview] = []
        self.generation = 0
        self.held = False
        self.stop = "end_turn"
        self.waits_for: list[str] = []
        self.appends: list[pb.AppendEvents] = []
        self.opens: list[pb.OpenLease] = []
        self.renewals = 0
        # Checkpoints that were given here, the last one being answered; events sent by each stream.
        self.saved: list[Checkpoint] = []
        self.checkpoint: Checkpoint | None = None
        self.sent: list[int] = []
        self.changed = asyncio.Event()
        self.connection: asyncio.Queue[pb.LeaseResponse | DroverError] | None = None
        # Faults: break the connection before, or after, the append that a test picks.
        self.break_before: Callable[[pb.AppendEvents], bool] | None = None
        self.break_after: Callable[[pb.AppendEvents], bool] | None = None
        self.before_append: Callable[[pb.AppendEvents], None] | None = None
        self.take_at_most = 1000
        # Whether the brain knew less than the log when it took the lease.
        self.stale = False
        self._clock = 1_700_000_000

    # What clients do.

    def send(self, *events: Event) -> list[Event]:
        """Accepts client events: answers enter the log, the rest the inbox."""
        for event in events:
            event.id = event.id or new_id("sevt")
            if kind(event) in _ANSWERS:
                call_id = answered_by(event)
                if self.calls.get(call_id) == "open":
                    self.calls[call_id] = "closed"
                    self._append(event)
            else:
                if kind(event) == "user_tool_confirmation":
                    confirmation = event.user_tool_confirmation
                    allowed = confirmation.result == CONFIRMATION_RESULT_ALLOW
                    # One that is allowed waits for its worker, who is elsewhere.
                    if not (allowed and self.session.environment.HasField("self_hosted")):
                        self.calls[confirmation.tool_use_id] = "answered"
                self.inbox.append(event)
        waiting = self.waiting()
        waiting.log_grown = any(kind(event) in _ANSWERS for event in events)
        self._push(pb.LeaseResponse(input_waiting=waiting))
        self._notify()
        return list(events)

    def message(self, *texts: str) -> Event:
        content = [ContentBlock(text=TextBlock(text=text)) for text in texts]
        return self.send(Event(user_message=UserMessage(content=content)))[0]

    def interrupt(self) -> Event:
        return self.send(Event(user_interrupt=UserInterrupt()))[0]

    def confirm(self, call_id: str, *, allow: bool, message: str | None = None) -> Event:
        verdict = CONFIRMATION_RESULT_ALLOW if allow else CONFIRMATION_RESULT_DENY
        confirmation = UserToolConfirmation(
            tool_use_id=call_id, result=verdict, deny_message=message
        )
        return self.send(Event(user_tool_confirmation=confirmation))[0]

    def change(self, agent: SessionAgent) -> None:
        """An update gives the session other tools, which its log tells of."""
        self.session.agent.CopyFrom(agent)
        self._append(Event(id=new_id("sevt"), session_updated=SessionUpdated(agent=agent)))

    def answer(self, call_id: str, text: str) -> Event:
        content = [ContentBlock(text=TextBlock(text=text))]
        answer = UserCustomToolResult(custom_tool_use_id=call_id, content=content)
        return self.send(Event(user_custom_tool_result=answer))[0]

    def work(self, call_id: str, text: str) -> Event:
        """A worker answers."""
        content = [ContentBlock(text=TextBlock(text=text))]
        return self.send(
            Event(user_tool_result=UserToolResult(tool_use_id=call_id, content=content))
        )[0]

    # What tests look at.

    @property
    def time(self) -> Timestamp:
        """What the log is stamped with; not the brain's time, by years."""
        return Timestamp(seconds=self._clock)

    @property
    def kinds(self) -> list[str]:
        return [kind(event) for event in self.log]

    def of(self, name: str) -> list[Event]:
        return [event for event in self.log if kind(event) == name]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once `condition` holds; fails after half a minute."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    # Faults.

    def break_connection(self, reason: Reason = Reason.UNAVAILABLE) -> None:
        if self.connection is not None:
            self.connection.put_nowait(DroverError(reason, "the connection broke"))

    def revoke(self) -> None:
        """The lease passes on."""
        self.generation += 1
        self.held = False
        self.break_connection(Reason.LEASE_LOST)

    # What the service does.

    def waiting(self) -> pb.InputWaiting:
        kinds = {kind(event) for event in self.inbox}
        return pb.InputWaiting(
            interrupt="user_interrupt" in kinds,
            confirmation="user_tool_confirmation" in kinds,
            message="user_message" in kinds,
        )

    def kept_for(self, opening: pb.OpenLease) -> Checkpoint | None:
        """The checkpoint that a brain is given with the lease."""
        kept = self.checkpoint
        asked = not opening.after_seq and kept and kept.format in opening.checkpoint_formats
        return kept if asked else None

    def append(self, request: pb.AppendEvents, sent: int) -> pb.Appended:
        if self.before_append is not None:
            self.before_append(request)
        others = self.log[sent:]
        known = {event.id for event in self.log}
        fresh = [event for event in request.events if event.id not in known]
        taken = self._choose(request.take) if fresh or not request.events else []
        left = [event for event in self.inbox if event not in taken]
        if request.release and self._pending(left, fresh):
            return pb.Appended(
                request_id=request.request_id,
                others=others,
                head_seq=len(self.log),
                input=self.waiting(),
                input_pending=True,
            )
        self.inbox = left
        for event in taken:
            self._append(event)
        for event in fresh:
            self._add(event)
        self.appends.append(request)
        self.held = not request.release
        self._notify()
        return pb.Appended(
            request_id=request.request_id,
            taken=taken,
            others=others,
            head_seq=len(self.log),
            input=self.waiting(),
            released=request.release,
        )

    def _choose(self, take: int) -> list[Event]:
        interrupts = [event for event in self.inbox if kind(event) == "user_interrupt"]
        control = [event for event in self.inbox if kind(event) == "user_tool_confirmation"]
        if take == pb.TAKE_INPUT_ALL:
            others = [event for event in self.inbox if event not in interrupts]
            return interrupts + others[: self.take_at_most]
        if take == pb.TAKE_INPUT_CONTROL:
            return interrupts + control
        if take == pb.TAKE_INPUT_CONFIRMATIONS:
            return control
        if take == pb.TAKE_INPUT_NEXT:
            return interrupts + control + ([] if interrupts else self._next_message())
        return []

    def _next_message(self) -> list[Event]:
        """The oldest message, with the system message that goes with it."""
        said = [event for event in self.inbox if kind(event) in ("user_message", "system_message")]
        accompanied = [kind(event) for event in said[1:2]] == ["system_message"]
        return said[: 1 + accompanied]

    def _pending(self, left: list[Event], fresh: list[Event]) -> bool:
        stop, waits_for = self.stop, self.waits_for
        for event in fresh:
            if kind(event) == "session_status_idle":
                reason = event.session_status_idle.stop_reason
                stop = reason.WhichOneof("reason") or ""
                waits_for = list(reason.requires_action.event_ids)
        if any(kind(event) in _CONTROL for event in left):
            return True
        if left and stop not in _WAITS:
            return True
        return any(self.calls.get(call_id, "open") != "open" for call_id in waits_for)

    def _add(self, event: Event) -> None:
        match kind(event):
            case "agent_tool_use" | "agent_mcp_tool_use" | "agent_custom_tool_use":
                self.calls[event.id] = "open"
            case _ if call_id := answered_by(event):
                assert call_id in self.calls, f"result of the unknown call {call_id}"
                if self.calls[call_id] == "closed":
                    return
                self.calls[call_id] = "closed"
            case "session_status_idle":
                reason = event.session_status_idle.stop_reason
                self.stop = reason.WhichOneof("reason") or ""
                self.waits_for = list(reason.requires_action.event_ids)
            case _:
                pass
        self._append(event)

    def _append(self, event: Event) -> None:
        self._clock += 1
        event.seq = len(self.log) + 1
        event.processed_at.seconds = self._clock
        self.log.append(event)

    def _push(self, response: pb.LeaseResponse) -> None:
        if self.connection is not None:
            self.connection.put_nowait(response)

    def _notify(self) -> None:
        self.changed.set()


class FakeSessions(SessionServiceServicer):
    """Serves `HoldLease` for the sessions that a test has made."""

    def __init__(self) -> None:
        self.by_id: dict[str, FakeSession] = {}
        self.slice_size = 3

    def add(self, session: Session) -> FakeSession:
        self.by_id[session.id] = FakeSession(session)
        return self.by_id[session.id]

    async def GetSession(self, request: GetSessionRequest, _context: Any) -> GetSessionResponse:
        return GetSessionResponse(session=self.by_id[request.session_id].session)

    async def GetEvents(self, request: GetEventsRequest, _context: Any) -> GetEventsResponse:
        """Slices by position and around an event, and pages of 50."""
        log = self.by_id[request.session_id].log
        wanted = [e for e in log if wire_type(e) in request.types or not request.types]
        if request.HasField("around_event_id"):
            ids = [event.id for event in log]
            if request.around_event_id not in ids:
                raise DroverError(Reason.NOT_FOUND, "no such event")
            at = ids.index(request.around_event_id)
            before = [e for e in wanted if e.seq <= at][-request.events_before :]
            behind = [e for e in wanted if e.seq > at + 1][: request.events_after]
            itself = [e for e in wanted if e.seq == at + 1]
            return GetEventsResponse(data=[*before * bool(request.events_before), *itself, *behind])
        after = max(request.after_seq, int(request.page or 0))
        rest = [event for event in wanted if event.seq > after]
        page = rest[: min(50, request.limit)]
        more = str(page[-1].seq) if len(page) < len(rest) else None
        return GetEventsResponse(data=page, next_page=more)

    async def HoldLease(
        self, messages: AsyncIterator[pb.HoldLeaseRequest], _context: Any
    ) -> AsyncIterator[pb.HoldLeaseResponse]:
        requests = _each(messages)
        opening = (await anext(requests)).open
        session = self.by_id.get(opening.session_id)
        if session is None:
            raise DroverError(Reason.NOT_FOUND, "no such session")
        session.opens.append(opening)
        session.changed.set()
        if opening.generation:
            if opening.generation != session.generation or not session.held:
                raise DroverError(Reason.LEASE_LOST, "the lease has passed on")
        elif session.held:
            raise DroverError(Reason.LEASE_HELD, "another brain is at work")
        else:
            session.generation += 1
            session.held = True
        head, generation = len(session.log), session.generation
        queue = session.connection = asyncio.Queue()
        kept = session.kept_for(opening)
        begin = opening.after_seq if kept is None else kept.seq
        session.sent.append(head - begin)
        yield _message(
            opened=pb.LeaseOpened(
                generation=session.generation,
                session=session.session,
                head_seq=head,
                input=session.waiting(),
                checkpoint=kept,
                previews_wanted=True,
                time=session.time,
            )
        )
        for at in range(begin, head, self.slice_size):
            piece = session.log[at : min(at + self.slice_size, head)]
            yield _message(log=pb.LogSlice(events=piece))
        session.stale = not opening.generation and opening.after_seq < head
        reader = asyncio.create_task(self._read(requests, session, queue, head, generation))
        try:
            while True:
                response = await queue.get()
                if isinstance(response, DroverError):
                    raise response
                yield pb.HoldLeaseResponse(responses=[response])
                if response.appended.released:
                    return
        finally:
            reader.cancel()
            if session.connection is queue:
                session.connection = None
            session.changed.set()

    async def _read(
        self,
        requests: AsyncIterator[pb.LeaseRequest],
        session: FakeSession,
        queue: asyncio.Queue[pb.LeaseResponse | DroverError],
        sent: int,
        generation: int,
    ) -> None:
        async for request in requests:
            if session.generation != generation:
                queue.put_nowait(DroverError(Reason.LEASE_LOST, "the lease has passed on"))
                return None
            match request.WhichOneof("request"):
                case "append":
                    append = request.append
                    if session.stale and not append.events and append.request_id == 1:
                        append.take = pb.TAKE_INPUT_UNSPECIFIED  # it came with the opening
                    if session.break_before is not None and session.break_before(append):
                        session.break_before = None
                        return queue.put_nowait(DroverError(Reason.UNAVAILABLE, "broke"))
                    try:
                        ack = session.append(append, sent)
                    except DroverError as refusal:  # what a test's `before_append` says
                        return queue.put_nowait(refusal)
                    sent = len(session.log)
                    if session.break_after is not None and session.break_after(append):
                        session.break_after = None
                        return queue.put_nowait(DroverError(Reason.UNAVAILABLE, "broke"))
                    queue.put_nowait(pb.LeaseResponse(appended=ack))
                case "preview":
                    session.previews.append(request.preview)
                    session.changed.set()
                case "renew":
                    session.renewals += 1
                    queue.put_nowait(pb.LeaseResponse(renewed=pb.LeaseRenewed()))
                case _:
                    pass
        return None


class FakeCheckpoints(checkpoint_service_pb2_grpc.CheckpointServiceServicer):
    """Keeps checkpoints of the sessions that a test has made, once `gate` is open."""

    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.gate = asyncio.Event()
        self.gate.set()

    async def SaveCheckpoint(
        self, request: checkpoint_service_pb2.SaveCheckpointRequest, _context: Any
    ) -> checkpoint_service_pb2.SaveCheckpointResponse:
        await self.gate.wait()
        session = self._sessions.by_id[request.session_id]
        if session.generation != request.generation:
            raise DroverError(Reason.LEASE_LOST, "the lease has passed on")
        session.checkpoint = request.checkpoint
        session.saved.append(request.checkpoint)
        session.changed.set()
        return checkpoint_service_pb2.SaveCheckpointResponse()


async def _each(messages: AsyncIterator[pb.HoldLeaseRequest]) -> AsyncIterator[pb.LeaseRequest]:
    async for message in messages:
        for request in message.requests:
            yield request


def _message(**response: Any) -> pb.HoldLeaseResponse:
    return pb.HoldLeaseResponse(responses=[pb.LeaseResponse(**response)])
