"""What the brain knows of a log that others write to while its own appends are on their way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from catalogue.models import unlisted
from drover.event.v1.agent_event_pb2 import AgentCustomToolUse
from drover.event.v1.event_pb2 import Event
from drover.event.v1.span_event_pb2 import SpanModelRequestEnd
from drover.session.v1.lease_pb2 import Appended, AppendEvents, InputWaiting
from drover.session.v1.session_pb2 import Session
from services.brain.domain import events
from services.brain.domain.events import EventFactory
from services.brain.harness.registry import HarnessRegistry
from services.brain.loop.session_log import DriftError, SessionLog
from tests.unit.brain.logs import HARNESS, Numbered, agent


class FakeLease:
    """Keeps what is appended; the test acknowledges."""

    waiting = InputWaiting()

    def __init__(self) -> None:
        self.appends: list[tuple[AppendEvents, asyncio.Future[Appended]]] = []

    @property
    def unacknowledged(self) -> int:
        return len(self.appends)

    def now(self) -> float:
        return 1_700_000_000.0

    def append(self, append: AppendEvents) -> asyncio.Future[Appended]:
        append.request_id = len(self.appends) + 1
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.appends.append((append, future))
        return future

    def acknowledge(self, log: SessionLog, number: int, **answer: Any) -> None:
        append, future = self.appends[number]
        ack = Appended(request_id=append.request_id, **answer)
        log.appended(append, ack)
        future.set_result(ack)


def opened() -> tuple[SessionLog, FakeLease, EventFactory]:
    """A log with two calls of a custom tool, `sevt_2` and `sevt_3`, as a brain finds it."""
    lease = FakeLease()
    log = SessionLog(HarnessRegistry(HARNESS), unlisted(), None)
    log.attach(cast("Any", lease))
    log.opened(Session(id="sesn_1", primary_thread_id="sthr_1", agent=agent()), None)
    factory = EventFactory(Numbered(), "sthr_1", "clerk")
    start = factory.request_start()
    calls = [
        Event(id=f"sevt_{number}", agent_custom_tool_use=AgentCustomToolUse(name="ask", input="{}"))
        for number in (2, 3)
    ]
    end = Event(span_model_request_end=SpanModelRequestEnd(model_request_start_id=start.id))
    held = [start, *calls, end]
    for seq, event in enumerate(held, start=1):
        event.seq = seq
    log.logged(held)
    return log, lease, factory


def answer(call_id: str, seq: int) -> Event:
    event = Event(id=f"sevt_answer{seq}", seq=seq)
    event.user_custom_tool_result.custom_tool_use_id = call_id
    event.user_custom_tool_result.content.add().text.text = "theirs"
    return event


async def release(log: SessionLog, factory: EventFactory) -> asyncio.Task[Appended]:
    task = asyncio.create_task(log.exchange([factory.request_start()], release=True))
    await asyncio.sleep(0)
    return task


async def test_release_may_be_refused_for_what_the_append_before_it_has_told() -> None:
    log, lease, factory = opened()
    log.add(factory.error(events.SessionError(), retrying=False))
    await log.flush()
    task = await release(log, factory)
    lease.acknowledge(log, 0, others=[answer("sevt_2", 5)], head_seq=6)
    lease.acknowledge(log, 1, head_seq=6, input_pending=True)
    assert (await task).input_pending


async def test_release_may_be_refused_for_what_a_new_connection_has_told() -> None:
    log, lease, factory = opened()
    task = await release(log, factory)
    log.logged([answer("sevt_2", 5)])
    lease.acknowledge(log, 0, head_seq=5, input_pending=True)
    assert (await task).input_pending


async def test_release_refused_for_nothing_is_an_error() -> None:
    log, lease, factory = opened()
    task = await release(log, factory)
    lease.acknowledge(log, 0, head_seq=4, input_pending=True)
    with pytest.raises(DriftError):
        await task


async def test_clients_answer_read_over_a_new_connection_comes_before_ours() -> None:
    log, lease, factory = opened()
    log.add(factory.result("sevt_2", [events.text("ours")], is_error=True))
    await log.flush()
    log.logged([answer("sevt_2", 5)])
    # Ours is sent again, and is not kept: the call has a result.
    lease.acknowledge(log, 0, head_seq=5)
    result = log.state.calls["sevt_2"].result
    assert result is not None
    assert b"theirs" in result.block


async def test_clients_answer_settled_from_the_log_comes_before_ours() -> None:
    log, lease, factory = opened()
    log.add(
        factory.result("sevt_2", [events.text("ours")], is_error=True),
        factory.result("sevt_3", [events.text("ours, too")], is_error=True),
    )
    await log.flush()
    lease.acknowledge(log, 0, taken=[answer("sevt_2", 5)], head_seq=6)
    result = log.state.calls["sevt_2"].result
    assert result is None or b"theirs" in result.block
    assert b"theirs" in log.harness.request(log.state).body
