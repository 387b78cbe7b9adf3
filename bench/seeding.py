"""Long logs, written as a brain writes them, but in one pipeline and without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.stack import session_service
from chassis.ids import new_id
from drover.event.v1.agent_event_pb2 import AgentMessage
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import EndTurn, StopReason
from drover.event.v1.span_event_pb2 import ModelUsage, SpanModelRequestEnd
from drover.event.v1.usage_pb2 import UsageSnapshot
from drover.event.v1.user_event_pb2 import UserMessage
from drover.session.v1 import lease_pb2 as lease
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from services.brain.domain import events

EVENTS_A_TURN: Final = 9
_TURNS_AT_ONCE: Final = 100


async def grow(data: Path, session_id: str, turns: int, *, messages: bool = True) -> None:
    """Adds turns to an idle session: "hello", answered by "hello". The session is idle again then.

    Under a lease of our own, so that no brain is woken for the messages. It takes a message at a
    time, as a brain does; without `messages`, for a log that is only read, it is much quicker.
    """
    async with session_service(data) as as_brain, session_service(data, "gateway") as as_gateway:
        sessions: Any = SessionServiceStub(as_brain)
        clients: Any = SessionServiceStub(as_gateway)
        stream = sessions.HoldLease()
        opening = lease.OpenLease(session_id=session_id, holder="bench")
        await _write(stream, lease.LeaseRequest(open=opening))
        session = (await stream.read()).responses[0].opened.session
        factory = events.EventFactory(new_id, session.primary_thread_id, session.agent.name)
        for first in range(0, turns, _TURNS_AT_ONCE):
            count = min(_TURNS_AT_ONCE, turns - first)
            appends = [append for _ in range(count) for append in _turn(factory)]
            if messages:
                hello = [_hello() for _ in range(count)]
                request = pb.EmitEventsRequest(session_id=session_id, events=hello)
                await clients.EmitEvents(request)
            else:
                together = [event for append in appends for event in append.events]
                appends = [lease.AppendEvents(events=together)]
            appends[-1].release = first + count == turns
            await _append(stream, appends)
        await stream.done_writing()


def _hello() -> Event:
    return Event(user_message=UserMessage(content=[events.text("hello")]))


def _turn(factory: events.EventFactory) -> list[lease.AppendEvents]:
    start = factory.request_start()
    answer = Event(id=factory.new_id(), agent_message=AgentMessage(content=[events.text("hello")]))
    end = SpanModelRequestEnd(
        model_request_start_id=start.id, model_usage=ModelUsage(), stop_reason="end_turn"
    )
    idle = factory.idle(StopReason(end_turn=EndTurn()), None, UsageSnapshot(), None)
    return [
        lease.AppendEvents(events=[*factory.running(), start], take=lease.TAKE_INPUT_NEXT),
        lease.AppendEvents(
            events=[answer, Event(id=factory.new_id(), span_model_request_end=end), *idle]
        ),
    ]


async def _append(stream: Any, appends: list[lease.AppendEvents]) -> None:
    await _write(stream, *(lease.LeaseRequest(append=append) for append in appends))
    waiting = len(appends)
    while waiting:
        answers = (await stream.read()).responses
        waiting -= sum(answer.HasField("appended") for answer in answers)


async def _write(stream: Any, *requests: lease.LeaseRequest) -> None:
    await stream.write(lease.HoldLeaseRequest(requests=requests))
