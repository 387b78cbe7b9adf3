"""Forking over gRPC: a session of its own, that goes on by itself."""

from __future__ import annotations

import asyncio

from chassis.errors import Reason
from drover.session.v1 import session_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session.domain.copies import STEP_EVENTS
from tests.doubles.session_events import custom_use, idle, message, running, said
from tests.doubles.session_stack import echo_turns, refusal, running_service
from tests.doubles.session_world import kinds

CLOSING = ["session_thread_status_idle", "session_usage", "session_status_idle"]


async def fork(service, session_id, **fields):
    request = pb.ForkSessionRequest(session_id=session_id, **fields)
    return (await service.stub.ForkSession(request)).session


async def whole_log(service, session_id):
    events, page = [], None
    while True:
        answer = await service.events(session_id, page=page)
        events += answer.data
        if not answer.HasField("next_page"):
            return events
        page = answer.next_page


async def test_a_fork_is_a_session_like_any_other_and_remembers_where_it_is_from(service):
    session = await service.create(message("hello"), title="Flock", metadata={"a": "b"})
    lease = await service.lease(session.id).open()
    await lease.append(running(), said("hi", "said"), custom_use("call"), idle("call"), take=2)
    forked = await fork(service, session.id, event_id="call")
    assert forked.id != session.id
    assert (forked.title, dict(forked.metadata)) == ("Flock", {"a": "b"})
    assert forked.status == session_pb2.SESSION_STATUS_IDLE
    assert (forked.forked_from.session_id, forked.forked_from.seq) == (session.id, 4)
    assert forked.primary_thread_id != session.primary_thread_id
    assert forked.agent == session.agent
    found = await service.get(forked.id)
    found.stats.duration_seconds = forked.stats.duration_seconds
    assert found == forked
    log = await whole_log(service, forked.id)
    assert log[:4] == (await whole_log(service, session.id))[:4]
    assert kinds(log[4:]) == ["user_custom_tool_result", *CLOSING]
    # The source has not noticed.
    assert kinds((await whole_log(service, session.id))[4:]) == ["session_status_idle"]
    assert (await service.get(session.id)).forked_from.session_id == ""


async def test_a_fork_goes_on_while_its_source_runs(tmp_path):
    async with running_service(tmp_path, works=[echo_turns]) as service:
        session = await service.create(message("one"))
        await until_idle(service, session.id)
        forked = await fork(service, session.id)
        before = await whole_log(service, forked.id)
        await service.emit(forked.id, message("two"))
        await until_idle(service, forked.id)
        after = await whole_log(service, forked.id)
        assert after[: len(before)] == before
        assert after[-2].agent_message.content[0].text.text == "two"
        assert await whole_log(service, session.id) == before_threads(before, session, forked)


def before_threads(events, session, forked):
    """The events as the source has them."""
    for event in events:
        status = event.session_thread_status_running
        if status.session_thread_id == forked.primary_thread_id:
            status.session_thread_id = session.primary_thread_id
    return events


async def until_idle(service, session_id):
    async with asyncio.timeout(30):
        while (await service.get(session_id)).status != session_pb2.SESSION_STATUS_IDLE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_long_log_is_forked_in_steps_between_which_others_append(service):
    session = await service.create(message("hello"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=2)
    number = 3 * STEP_EVENTS
    for start in range(0, number, 1000):
        await lease.append(*(said(str(n), f"e{n}") for n in range(start, start + 1000)))
    forking = asyncio.ensure_future(fork(service, session.id, event_id=f"e{number - 1}"))
    appended = 0
    while not forking.done():
        await lease.append(said("meanwhile"))
        appended += 1
    log = await whole_log(service, (await forking).id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert log[: number + 2] == (await whole_log(service, session.id))[: number + 2]
    assert kinds(log[number + 2 :]) == CLOSING
    assert appended


async def test_what_cannot_be_forked_is_refused_by_name(service):
    session = await service.create(message("hello", "waits"))
    for event_id, text in (
        ("waits", "event_id: the event waits in the inbox: it has no place in the log yet"),
        ("nowhere", "event_id: the session's log has no such event"),
    ):
        error = await refusal(fork(service, session.id, event_id=event_id))
        assert (error.reason, error.message) == (Reason.INVALID_ARGUMENT, text)
    assert (await refusal(fork(service, "sesn_0"))).reason is Reason.NOT_FOUND
    error = await refusal(fork(service, session.id, event_id=""))
    assert error.message.startswith("event_id: at least 1 character")
    assert len((await service.stub.ListSessions(pb.ListSessionsRequest())).data) == 1
