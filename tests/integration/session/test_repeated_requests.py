"""Every RPC of sessions that changes something has its effect once for its request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session.store.schema import SCHEMA
from tests.doubles.databases import lent
from tests.doubles.request_keys import answered, counted, metadata, named
from tests.doubles.session_events import message, said
from tests.doubles.session_stack import (
    AGENT_ID,
    ENVIRONMENT_ID,
    echo_turns,
    refusal,
    running_service,
)
from tests.doubles.session_world import kinds

RPCS = [
    "CreateSession",
    "UpdateSession",
    "ArchiveSession",
    "DeleteSession",
    "ForkSession",
    "EmitEvents",
]


@pytest.fixture(params=["sqlite", "postgres"])
async def service(request, tmp_path):
    """A service without brains, on either engine."""
    settings = {}
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            database = lent(request.getfixturevalue("postgres"), SCHEMA)
            settings["database_url"] = await stack.enter_async_context(database)
        yield await stack.enter_async_context(running_service(tmp_path, **settings))


def creation(*events, **fields):
    request = pb.CreateSessionRequest(
        environment_id=ENVIRONMENT_ID, initial_events=events, **fields
    )
    request.agent.agent.id = AGENT_ID
    return request


async def prepared(service, rpc):
    """A request that changes something."""
    if rpc == "CreateSession":
        return creation(message("hello"), metadata={"b": "1", "a": "2"})
    session_id = (await service.create()).id
    if rpc == "EmitEvents":
        return pb.EmitEventsRequest(session_id=session_id, events=[message("one"), message("two")])
    request = getattr(pb, f"{rpc}Request")(session_id=session_id)
    if rpc == "UpdateSession":
        request.title = "another"
        request.update_mask.paths.append("title")
    return request


async def count(service):
    return len((await service.stub.ListSessions(pb.ListSessionsRequest())).data)


@pytest.mark.parametrize("kind", ["named", "counted"])
@pytest.mark.parametrize("rpc", RPCS)
async def test_a_repeated_request_gets_the_first_answer(service, rpc, kind):
    request, method = await prepared(service, rpc), getattr(service.stub, rpc)
    keys = [named("k")] * 2 if kind == "named" else [counted("k", 0), counted("k", 1)]
    first, replayed = await answered(method, request, keys[0])
    assert not replayed
    assert await answered(method, request, keys[1]) == (first, True)


@pytest.mark.parametrize("rpc", RPCS)
async def test_a_key_of_another_request_is_a_conflict(service, rpc):
    request, method = await prepared(service, rpc), getattr(service.stub, rpc)
    await answered(method, request, named("k"))
    refused = await refusal(method(request, metadata=metadata(named("k", "another"))))
    assert refused.reason is Reason.CONFLICT


async def test_sent_once_means_one_event_each(service):
    request = await prepared(service, "EmitEvents")
    for attempt in range(3):
        await answered(service.stub.EmitEvents, request, counted("k", attempt))
    assert kinds((await service.events(request.session_id)).data) == ["user_message"] * 2
    await answered(service.stub.EmitEvents, request, counted("k", 0))
    assert kinds((await service.events(request.session_id)).data) == ["user_message"] * 4


async def test_a_creation_that_comes_many_times_at_once_creates_one_session(service):
    calls = [answered(service.stub.CreateSession, creation(), named("k")) for _ in range(8)]
    done = await asyncio.gather(*calls)
    assert len({answer.session.id for answer, _ in done}) == 1
    assert sum(not replayed for _, replayed in done) == 1
    assert await count(service) == 1


@pytest.mark.parametrize("events", [3, 2500])
async def test_a_fork_that_is_asked_for_many_times_at_once_is_one(service, events):
    source = await service.create()
    lease = await service.lease(source.id).open()
    await lease.append(*(said("x") for _ in range(events)))
    request = pb.ForkSessionRequest(session_id=source.id)
    calls = [answered(service.stub.ForkSession, request, named("k")) for _ in range(4)]
    done = await asyncio.gather(*calls)
    assert len({answer.session.id for answer, _ in done}) == 1
    assert sum(not replayed for _, replayed in done) == 1
    assert await count(service) == 2


async def test_a_repetition_is_answered_whatever_has_become_of_the_environment(service):
    first, _ = await answered(service.stub.CreateSession, creation(), named("k"))
    service.environments.environment.archived_at.GetCurrentTime()
    assert await answered(service.stub.CreateSession, creation(), named("k")) == (first, True)
    refused = await refusal(service.stub.CreateSession(creation()))
    assert refused.reason is Reason.ARCHIVED


async def test_a_refused_creation_is_tried_again(service):
    service.environments.environment.archived_at.GetCurrentTime()
    call = service.stub.CreateSession(creation(), metadata=metadata(named("k")))
    assert (await refusal(call)).reason is Reason.ARCHIVED
    service.environments.environment.ClearField("archived_at")
    assert not (await answered(service.stub.CreateSession, creation(), named("k")))[1]


async def test_a_session_that_was_deleted_is_not_created_again(service):
    made, _ = await answered(service.stub.CreateSession, creation(), named("k"))
    await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=made.session.id))
    call = service.stub.CreateSession(creation(), metadata=metadata(named("k")))
    assert (await refusal(call)).reason is Reason.NOT_FOUND
    assert await count(service) == 0


async def test_answers_outlive_the_process_that_gave_them(tmp_path):
    async with running_service(tmp_path) as service:
        first, _ = await answered(service.stub.CreateSession, creation(), named("k"))
    async with running_service(tmp_path) as service:
        assert await answered(service.stub.CreateSession, creation(), named("k")) == (first, True)


async def test_a_message_that_was_answered_is_not_answered_again_for_its_repetition(tmp_path):
    async with running_service(tmp_path, works=[echo_turns]) as service:
        session = await service.create()
        request = pb.EmitEventsRequest(session_id=session.id, events=[message("hello")])
        first, _ = await answered(service.stub.EmitEvents, request, counted("k", 0))
        stream = service.stream(session.id, after_event_id="")
        async for frame in stream:
            if frame.event.HasField("session_status_idle"):
                break
        stream.cancel()
        again, replayed = await answered(service.stub.EmitEvents, request, counted("k", 1))
        assert (again, replayed) == (first, True)
        log = (await service.events(session.id)).data
        assert kinds(log).count("user_message") == 1
        assert kinds(log).count("agent_message") == 1


# event ids


async def conflict(call):
    refused = await refusal(call)
    assert isinstance(refused, DroverError)
    assert refused.reason is Reason.CONFLICT
    assert not refused.rule.retryable
    return refused


async def test_an_id_that_waits_stands_for_its_event_alone(service):
    session = await service.create()
    [first] = await service.emit(session.id, message("one", "sevt_mine"))
    assert await service.emit(session.id, message("one", "sevt_mine")) == [first]
    await conflict(service.emit(session.id, message("two", "sevt_mine")))
    assert len((await service.events(session.id)).data) == 1


async def test_an_id_that_was_taken_since_stands_for_its_event_alone(service):
    session = await service.create()
    await service.emit(session.id, message("one", "sevt_mine"))
    lease = await service.lease(session.id).open()
    taken = (await lease.append(take=lease_pb2.TAKE_INPUT_NEXT)).taken
    assert await service.emit(session.id, message("one", "sevt_mine")) == list(taken)
    await conflict(service.emit(session.id, message("two", "sevt_mine")))
    assert len((await service.events(session.id)).data) == 1


async def test_a_client_does_not_get_the_id_of_a_brains_event(service):
    session = await service.create()
    lease = await service.lease(session.id).open()
    await lease.append(said("mine", "sevt_brain"))
    await conflict(service.emit(session.id, message("one", "sevt_brain")))


async def test_a_brain_that_repeats_an_append_adds_nothing(service):
    session = await service.create()
    lease = await service.lease(session.id).open()
    await lease.append(said("one", "sevt_a"), said("two", "sevt_b"))
    again = await lease.append(said("one", "sevt_a"), said("two", "sevt_b"))
    assert again.head_seq == 2


async def test_a_brain_that_repeats_an_id_for_another_event_is_refused(service):
    session = await service.create()
    lease = await service.lease(session.id).open()
    await lease.append(said("one", "sevt_a"))
    await lease.send(said("another", "sevt_a"))
    await conflict(lease.acknowledged())
    assert len((await service.events(session.id)).data) == 1


async def test_a_brain_does_not_get_the_id_of_an_event_that_waits(service):
    session = await service.create()
    await service.emit(session.id, message("one", "sevt_mine"))
    lease = await service.lease(session.id).open()
    await lease.send(said("mine", "sevt_mine"))
    await conflict(lease.acknowledged())
    again = await service.lease(session.id, generation=lease.generation).open()
    taken = (await again.append(take=lease_pb2.TAKE_INPUT_NEXT)).taken
    assert kinds(taken) == ["user_message"]


async def test_an_emitted_event_of_a_lease_is_repeated_as_it_is_stored(service):
    session = await service.create()
    lease = await service.lease(session.id).open()
    [first] = await service.emit(session.id, said("one", "sevt_a"), generation=lease.generation)
    again = await service.emit(session.id, said("one", "sevt_a"), generation=lease.generation)
    assert again == [first]
    await conflict(service.emit(session.id, said("two", "sevt_a"), generation=lease.generation))
