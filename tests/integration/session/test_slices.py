"""Slices of a log over gRPC: around an event, of a thread, and cursors that fit one list only."""

from __future__ import annotations

import pytest

from chassis.errors import Reason
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_events import message, running, said
from tests.doubles.session_stack import refusal


@pytest.fixture
async def session(service):
    """A session with ten events in its log and one in its inbox."""
    session = await service.create(message("hello"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), *(said(str(n), f"e{n}") for n in range(3, 11)), take=2)
    await service.emit(session.id, message("later"))
    return session


def seqs(response):
    return [event.seq for event in response.data]


async def test_an_event_is_shown_among_its_neighbours(service, session):
    around = {"around_event_id": "e5", "events_before": 2, "events_after": 1}
    assert seqs(await service.events(session.id, **around)) == [3, 4, 5, 6]
    back = await service.events(session.id, order=pb.SORT_ORDER_DESC, **around)
    assert seqs(back) == [6, 5, 4, 3]
    assert seqs(await service.events(session.id, around_event_id="e10", events_after=9)) == [10]
    few = await service.events(session.id, limit=3, **around)
    assert seqs(few) == [3, 4, 5]
    rest = await service.events(session.id, limit=3, page=few.next_page, **around)
    assert (seqs(rest), rest.HasField("next_page")) == ([6], False)
    typed = {"around_event_id": "e5", "events_before": 9, "types": ["user.message"]}
    assert seqs(await service.events(session.id, **typed)) == [1]


async def test_bounds_that_contradict_each_other_are_refused_by_name(service, session):
    at = session.created_at
    for fields, path in (
        ({"events_before": 1}, "events_before"),
        ({"events_after": 0}, "events_after"),
        ({"around_event_id": "e5", "after_seq": 1}, "after_seq"),
        ({"around_event_id": "e5", "before_seq": 9}, "before_seq"),
        ({"around_event_id": "e5", "created_at_gte": at}, "created_at_gte"),
        ({"around_event_id": "nowhere"}, "around_event_id"),
        ({"around_event_id": ""}, "around_event_id"),
        ({"around_event_id": "e5", "events_before": -1}, "events_before"),
        ({"around_event_id": "e5", "events_after": 1001}, "events_after"),
        ({"thread_id": ""}, "thread_id"),
    ):
        error = await refusal(service.events(session.id, **fields))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith(f"{path}: ")


async def test_the_primary_threads_events_are_the_sessions(service, session):
    whole = await service.events(session.id)
    own = await service.events(session.id, thread_id=session.primary_thread_id)
    request = pb.GetThreadEventsRequest(session_id=session.id, thread_id=session.primary_thread_id)
    assert own == whole
    assert (await service.stub.GetThreadEvents(request)).data == whole.data
    for call in (
        service.events(session.id, thread_id="sthr_0"),
        service.stub.GetThreadEvents(
            pb.GetThreadEventsRequest(session_id=session.id, thread_id="sthr_0")
        ),
    ):
        error = await refusal(call)
        assert (error.reason, error.message) == (Reason.NOT_FOUND, "thread sthr_0 not found")


async def test_a_cursor_fits_no_other_slice(service, session):
    query = {"around_event_id": "e5", "events_before": 3, "events_after": 3, "limit": 1}
    cursor = (await service.events(session.id, **query)).next_page
    assert seqs(await service.events(session.id, page=cursor, **query)) == [3]
    assert seqs(await service.events(session.id, page=cursor, **query | {"limit": 2})) == [3, 4]
    for changed in (
        {"around_event_id": "e6"},
        {"events_before": 2},
        {"events_after": 4},
        {"order": pb.SORT_ORDER_DESC},
        {"thread_id": session.primary_thread_id},
        {"types": ["agent.message"]},
    ):
        error = await refusal(service.events(session.id, page=cursor, **query | changed))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("page: ")


async def test_every_list_refuses_the_cursors_of_the_others(service, session):
    other = await service.create()

    async def sessions(page=None):
        return await service.stub.ListSessions(pb.ListSessionsRequest(limit=1, page=page))

    async def events(page=None):
        return await service.events(session.id, limit=1, page=page)

    async def thread_events(page=None):
        request = pb.GetThreadEventsRequest(
            session_id=session.id, thread_id=session.primary_thread_id, limit=1, page=page
        )
        return await service.stub.GetThreadEvents(request)

    async def threads(page=None):
        request = pb.ListThreadsRequest(session_id=session.id, limit=1, page=page)
        return await service.stub.ListThreads(request)

    lists = (sessions, events, thread_events, threads)
    cursors = {one: (await one()).next_page for one in lists[:-1]}
    assert all(cursors.values())
    for one in lists:
        good = cursors.get(one, "")
        if good:
            assert (await one(page=good)).data
        wrong = {*cursors.values(), good[:-1], f"{good}A", f"{good}=", good.swapcase(), "é", " "}
        for cursor in wrong - {good}:
            error = await refusal(one(page=cursor))
            assert error.reason is Reason.INVALID_ARGUMENT
            assert error.message.startswith("page: ")
    assert other.id
