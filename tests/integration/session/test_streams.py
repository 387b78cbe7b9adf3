"""Following a session live: no gap, no repetition, however fast or slow the reader."""

from __future__ import annotations

import asyncio

from chassis.errors import Reason
from drover.session.v1 import lease_pb2, preview_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session import feed
from tests.doubles.session_events import idle, message, running, said
from tests.doubles.session_stack import DEADLINE, Stream, refusal, running_service, until
from tests.doubles.session_world import kinds


async def following(service, session_id, **fields):
    stream = service.stream(session_id, **fields)
    async with asyncio.timeout(DEADLINE):
        await stream.initial_metadata()
    return stream


async def take(stream, count):
    async with asyncio.timeout(DEADLINE):
        return [await stream.read() for _ in range(count)]


async def drain(stream):
    async with asyncio.timeout(DEADLINE):
        return [frame async for frame in stream]


def start(event_id, kind="agent.message"):
    event = preview_pb2.PreviewedEvent(type=kind, id=event_id)
    return preview_pb2.Preview(event_start=preview_pb2.EventStart(event=event))


def delta(event_id, text):
    content = preview_pb2.ContentDelta(content=preview_pb2.TextDelta(text=text))
    return preview_pb2.Preview(event_delta=preview_pb2.EventDelta(event_id=event_id, delta=content))


async def test_an_accepted_event_is_seen_unstamped_and_again_when_stamped(service):
    session = await service.create()
    stream = await following(service, session.id)
    [stored] = await service.emit(session.id, message("hi"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=2)
    frames = [frame.event for frame in await take(stream, 3)]
    assert [event.seq for event in frames] == [0, 1, 2]
    assert frames[0] == stored
    assert frames[1].id == stored.id
    assert frames[1].HasField("processed_at")


async def test_what_one_commit_brings_comes_in_one_message(service):
    session = await service.create(message("hi"))
    lease = await service.lease(session.id).open()
    stream = await following(service, session.id)
    await lease.append(running(), said("a"), said("b"), take=2)
    assert [frame.event.seq for frame in await take(stream, 4)] == [1, 2, 3, 4]
    assert stream.messages == 1


async def test_what_is_caught_up_with_comes_in_messages_of_bounded_size(service):
    session = await service.create(message("hi"))
    lease = await service.lease(session.id).open()
    await lease.append(*(said("x" * 100_000) for _ in range(10)), said("x" * 600_000), said("end"))
    stream = await following(service, session.id, after_event_id="")
    assert [frame.event.seq for frame in await take(stream, 12)] == list(range(1, 13))
    assert stream.messages == 7


async def test_a_stream_begins_now(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=2)
    stream = await following(service, session.id)
    await lease.append(said("seen"))
    assert [frame.event.seq for frame in await take(stream, 1)] == [3]


async def test_subscribe_then_list_sees_every_event_exactly_once(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    writing = asyncio.create_task(_write(lease, 200))
    stream = await following(service, session.id)
    listed = {event.id for event in (await service.events(session.id)).data}
    await writing
    await service.emit(session.id, message("last", "last"))
    async with asyncio.timeout(DEADLINE):
        while (frame := await stream.read()).event.id != "last":
            listed.add(frame.event.id)
    everything = {event.id for event in (await service.events(session.id)).data}
    assert listed | {"last"} == everything


async def _write(lease, count):
    for number in range(count):
        await lease.append(said(str(number)))


async def test_a_cut_stream_goes_on_behind_its_last_event(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    [first] = (await lease.append(take=2)).taken
    seen, last = [first.seq], first.id
    writing = asyncio.create_task(_write(lease, 100))
    while len(seen) < 101:
        stream = await following(service, session.id, after_event_id=last)
        for frame in await take(stream, min(7, 101 - len(seen))):
            seen.append(frame.event.seq)
            last = frame.event.id
        stream.cancel()
    await writing
    assert seen == list(range(1, 102))


async def test_a_stream_says_where_the_log_is_and_can_begin_at_its_beginning(service):
    session = await service.create(message("hi"))

    async def begins(**fields):
        stream = service.stream(session.id, **fields)
        metadata = dict(await stream.initial_metadata())
        return metadata["x-drover-last-event-id"], stream

    assert (await begins())[0] == ""
    lease = await service.lease(session.id).open()
    await lease.append(running(), said("a", "e1"), take=2)
    assert (await begins())[0] == "e1"
    last_id, stream = await begins(after_event_id="")
    assert last_id == "e1"
    assert [frame.event.seq for frame in await take(stream, 3)] == [1, 2, 3]


async def test_an_event_that_the_log_does_not_have_cannot_be_gone_on_behind(service):
    session = await service.create()
    [waiting] = await service.emit(session.id, message())
    for event_id in ("sevt_nowhere", waiting.id):
        error = await refusal(take(service.stream(session.id, after_event_id=event_id), 1))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("after: ")


async def test_archive_ends_the_stream_with_its_last_events(service):
    session = await service.create()
    stream = await following(service, session.id)
    await service.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=session.id))
    assert kinds([frame.event for frame in await drain(stream)]) == [
        "session_thread_status_terminated",
        "session_status_terminated",
    ]
    assert await drain(await following(service, session.id)) == []
    [first, *_] = (await service.events(session.id)).data
    rest = await drain(await following(service, session.id, after_event_id=first.id))
    assert kinds([frame.event for frame in rest]) == ["session_status_terminated"]


async def test_delete_ends_the_stream_with_its_own_event(service):
    session = await service.create()
    stream = await following(service, session.id)
    await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session.id))
    [frame] = await drain(stream)
    assert frame.event.HasField("session_deleted")
    assert frame.event.HasField("processed_at")
    assert (await refusal(take(service.stream(session.id), 1))).reason is Reason.NOT_FOUND


async def test_previews_reach_those_who_asked_and_end_with_the_event(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    asked = await following(service, session.id, event_deltas=["agent.message"])
    other = await following(service, session.id, event_deltas=["agent.thinking"])
    plain = await following(service, session.id)
    for preview in (start("e1"), delta("e1", "Hel"), delta("e1", "lo")):
        await lease.preview(preview)
    await lease.append(said("Hello", "e1"))
    frames = await take(asked, 4)
    assert [frame.preview for frame in frames[:3]] == [
        start("e1"),
        delta("e1", "Hel"),
        delta("e1", "lo"),
    ]
    assert frames[3].event.id == "e1"
    for stream in (other, plain):
        assert (await take(stream, 1))[0].event.id == "e1"
    await lease.preview(delta("e1", "late"))
    await lease.append(said("next", "e2"))
    assert (await take(asked, 1))[0].event.id == "e2"


async def test_a_brain_is_told_whether_anybody_would_see_previews(service):
    session = await service.create(message())
    await following(service, session.id)
    first = await service.lease(session.id).open()
    assert not first.opened.previews_wanted
    await following(service, session.id, event_deltas=["agent.message"])
    assert (await first.read()).HasField("previews_wanted")
    await following(service, session.id, event_deltas=["agent.message"])
    await first.append(running(), take=lease_pb2.TAKE_INPUT_ALL)
    assert not first.notices  # told once
    assert (await first.append(idle(), release=True)).released
    await service.emit(session.id, message())
    second = await service.lease(session.id).open()
    assert second.opened.previews_wanted
    await second.close()


async def test_a_stream_opened_after_the_start_gets_no_deltas(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    early = await following(service, session.id, event_deltas=["agent.message"])
    await lease.preview(start("e1"))
    await take(early, 1)
    late = await following(service, session.id, event_deltas=["agent.message"])
    await lease.preview(delta("e1", "Hello"))
    await lease.append(said("Hello", "e1"))
    assert (await take(late, 1))[0].event.id == "e1"
    assert len(await take(early, 2)) == 2


async def test_an_unknown_type_of_preview_is_refused(service):
    session = await service.create()
    stream = service.stream(session.id, event_deltas=["agent.tool_use"])
    assert (await refusal(take(stream, 1))).reason is Reason.INVALID_ARGUMENT


async def test_the_primary_threads_stream_is_the_sessions(service):
    session = await service.create()
    request = pb.StreamThreadEventsRequest(
        session_id=session.id, thread_id=session.primary_thread_id
    )
    stream = Stream(service.stub.StreamThreadEvents(request))
    await stream.initial_metadata()
    await service.emit(session.id, message("hi"))
    assert kinds([frame.event for frame in await take(stream, 1)]) == ["user_message"]
    request.thread_id = "sthr_other"
    error = await refusal(take(Stream(service.stub.StreamThreadEvents(request)), 1))
    assert error.reason is Reason.NOT_FOUND


async def test_a_reader_that_fell_behind_gets_everything_from_the_database(service, monkeypatch):
    monkeypatch.setattr(feed, "MAX_FRAMES", 4)
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    stream = await following(service, session.id)
    for number in range(40):
        await lease.send(*(said(f"{number}-{n}") for n in range(10)))
    for _ in range(40):
        await lease.acknowledged()
    frames = await take(stream, 400)
    assert [frame.event.seq for frame in frames] == list(range(1, 401))
    await lease.append(idle())
    assert (await take(stream, 1))[0].event.seq == 401


async def test_one_that_never_reads_is_disconnected_and_others_are_not(tmp_path, monkeypatch):
    followed = feed.Feed()
    monkeypatch.setattr("services.session.main.Feed", lambda _wanted: followed)
    async with running_service(tmp_path, stuck_reader_seconds=2.0) as service:
        session = await service.create(message())
        lease = await service.lease(session.id).open()
        stuck = await following(service, session.id)
        reader = await following(await service.another_client(), session.id)
        reading = asyncio.create_task(take(reader, 40))
        for _ in range(40):  # more than the transport buffers
            await lease.append(said("x" * 500_000))
        read = [frame.event for frame in await reading]
        assert [event.seq for event in read] == list(range(1, 41))
        await until(lambda: followed.followers(session.id) == 1)
        error = await refusal(drain(stuck))
        assert error.reason is Reason.RESOURCE_EXHAUSTED
        last = error.metadata["last_event_id"]
        rest = await following(service, session.id, after_event_id=last)
        # Right behind what it was sent, which is nothing if no buffer held a whole event.
        sent = {"": 0} | {event.id: event.seq for event in read}
        assert (await take(rest, 1))[0].event.seq == sent[last] + 1
