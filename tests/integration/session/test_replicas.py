"""Two replicas of the service on one PostgreSQL: what one commits, the other tells."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import Reason
from drover.session.v1 import lease_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session import peers, watch
from tests.doubles.session_events import (
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
)
from tests.doubles.session_replicas import running_replicas
from tests.doubles.session_stack import DEADLINE, refusal, until
from tests.doubles.session_world import kinds
from tests.integration.session.test_streams import delta, drain, following, start, take


@pytest.fixture
async def replicas(tmp_path, postgres, monkeypatch):
    """Without brains: tests hold leases themselves. Nobody polls, so that only hints help."""
    monkeypatch.setitem(watch.Watch.__init__.__kwdefaults__, "poll_seconds", 3600)
    made = []

    def make(*arguments):
        made.append(peers.Peers(*arguments))
        return made[-1]

    monkeypatch.setattr("services.session.main.Peers", make)
    async with running_replicas(tmp_path, postgres.new_database()) as running:
        await until(lambda: all(one._peers for one in made))
        running.peers = made
        yield running


@pytest.fixture
async def silent(tmp_path, postgres, monkeypatch):
    """Replicas whose hints are all lost: polling is the truth."""
    monkeypatch.setattr(peers.Peers, "compose", lambda _self: [])
    async with running_replicas(tmp_path, postgres.new_database()) as running:
        yield running


async def test_what_is_written_at_one_replica_is_followed_at_the_other(replicas):
    session = await replicas.one.create(message("hi"))
    stream = await following(replicas.other, session.id)
    lease = await replicas.one.lease(session.id).open()
    async with asyncio.timeout(DEADLINE):
        for number in range(20):
            await lease.append(said(str(number)))
        assert [frame.event.seq for frame in await take(stream, 20)] == list(range(1, 21))


async def test_what_is_accepted_at_the_other_replica_is_echoed_and_again_when_stamped(replicas):
    session = await replicas.one.create()
    streams = [await following(one, session.id) for one in (replicas.one, replicas.other)]
    lease = await replicas.one.lease(session.id).open()
    sent = []
    for number in range(10):
        at = replicas.one if number % 2 else replicas.other
        sent += [event.id for event in await at.emit(session.id, message(str(number)))]
    for stream in streams:
        echoes = await take(stream, 10)
        assert [frame.event.seq for frame in echoes] == [0] * 10
        assert [frame.event.id for frame in echoes] == sent
    await lease.append(running(), take=lease_pb2.TAKE_INPUT_ALL)
    for stream in streams:
        frames = await take(stream, 11)
        assert [frame.event.seq for frame in frames] == list(range(1, 12))
        assert [frame.event.id for frame in frames[:10]] == sent


async def test_an_event_that_was_taken_at_once_is_never_echoed_behind_its_stamp(replicas):
    session = await replicas.one.create()
    stream = await following(replicas.other, session.id)
    lease = await replicas.one.lease(session.id).open()
    seen = []
    for number in range(50):
        await replicas.one.emit(session.id, message(event_id=f"m{number}"))
        await lease.append(take=lease_pb2.TAKE_INPUT_ALL)
    async with asyncio.timeout(DEADLINE):
        while not seen or seen[-1] != ("m49", 50):
            event = (await stream.read()).event
            seen.append((event.id, event.seq))
    for number in range(50):
        of_one = [seq for event_id, seq in seen if event_id == f"m{number}"]
        assert of_one in ([0, number + 1], [number + 1])
    assert [seq for _, seq in seen if seq] == list(range(1, 51))


async def test_one_session_written_at_both_replicas_is_seen_in_order_at_each(replicas):
    session = await replicas.one.create(message())
    streams = [await following(one, session.id) for one in (replicas.one, replicas.other)]
    lease = await replicas.one.lease(session.id).open()

    async def post(service, name):
        for number in range(40):
            await service.emit(session.id, message(event_id=f"{name}{number}"))

    async def work():
        while (await lease.append(said("x"), take=lease_pb2.TAKE_INPUT_ALL)).head_seq < 300:
            pass

    await asyncio.gather(post(replicas.one, "a"), post(replicas.other, "b"), work())
    await lease.append(said("end", "end"), take=lease_pb2.TAKE_INPUT_ALL)
    log = [event.id for event in (await replicas.one.events(session.id, limit=1000)).data]
    for stream in streams:
        seen, echoed = [], []
        async with asyncio.timeout(DEADLINE):
            while not seen or seen[-1].id != "end":
                event = (await stream.read()).event
                (seen if event.seq else echoed).append(event)
        assert [event.id for event in seen] == log
        assert len({event.id for event in echoed}) == len(echoed)
        for name in "ab":
            own = [event.id for event in echoed if event.id.startswith(name)]
            assert own == sorted(own, key=lambda one: int(one[1:]))


async def test_input_at_the_other_replica_reaches_the_brain_at_once(replicas):
    session = await replicas.one.create(message())
    lease = await replicas.one.lease(session.id).open()
    await lease.append(running(), custom_use("c1"), take=lease_pb2.TAKE_INPUT_ALL)
    async with asyncio.timeout(DEADLINE):
        await replicas.other.emit(session.id, interrupt())
        assert (await lease.read()).input_waiting.interrupt
        await replicas.other.emit(session.id, custom_result("c1"))
        assert (await lease.read()).input_waiting.log_grown
    acknowledged = await lease.append(take=lease_pb2.TAKE_INPUT_CONTROL)
    assert kinds(acknowledged.taken) == ["user_interrupt"]
    assert kinds(acknowledged.others) == ["user_custom_tool_result"]


async def test_a_brain_is_told_of_input_once_and_not_of_its_own_appends(replicas):
    session = await replicas.one.create(message())
    lease = await replicas.one.lease(session.id).open()
    for number in range(30):
        await lease.append(said(str(number)))
        await replicas.other.emit(session.id, message())
    await lease.append(said("end"))
    assert all(notice.message and not notice.log_grown for notice in lease.notices)
    assert len(lease.notices) <= 30


async def test_a_lease_that_is_taken_away_at_the_other_replica_is_lost_at_once(replicas):
    session = await replicas.one.create()
    lease = await replicas.one.lease(session.id).open()
    async with asyncio.timeout(DEADLINE):
        await replicas.other.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=session.id))
        assert (await refusal(lease.read())).reason is Reason.LEASE_LOST


async def test_archive_and_delete_end_streams_at_every_replica(replicas):
    session, doomed = await replicas.one.create(), await replicas.one.create()
    stream = await following(replicas.other, session.id)
    async with asyncio.timeout(DEADLINE):
        await replicas.one.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=session.id))
        assert kinds([frame.event for frame in await drain(stream)]) == [
            "session_thread_status_terminated",
            "session_status_terminated",
        ]
    streams = [await following(one, doomed.id) for one in (replicas.one, replicas.other)]
    async with asyncio.timeout(DEADLINE):
        await replicas.one.stub.DeleteSession(pb.DeleteSessionRequest(session_id=doomed.id))
        [[here], [there]] = [await drain(stream) for stream in streams]
    assert here.event.HasField("session_deleted")
    assert here.event.id == there.event.id
    assert there.event.HasField("processed_at")


async def test_previews_cross_to_those_who_asked_and_end_with_the_event(replicas):
    session = await replicas.one.create(message())
    lease = await replicas.one.lease(session.id).open()
    asked = await following(replicas.other, session.id, event_deltas=["agent.message"])
    plain = await following(replicas.other, session.id)
    assert (await lease.read()).HasField("previews_wanted")
    for preview in (start("e1"), delta("e1", "Hel"), delta("e1", "lo ")):
        await lease.preview(preview)
    await lease.preview(delta("e1", "wörld" * 3000))
    text = "Hello " + "wörld" * 3000
    got = (await take(asked, 1))[0].preview
    assert got.event_start.event.id == "e1"
    shown = ""
    while shown != text:
        shown += (await take(asked, 1))[0].preview.event_delta.delta.content.text
        assert text.startswith(shown)
    await lease.append(said(text, "e1"))
    await lease.preview(delta("e1", "late"))
    await lease.append(said("next", "e2"))
    assert [frame.event.id for frame in await take(asked, 2)] == ["e1", "e2"]
    assert [frame.event.id for frame in await take(plain, 2)] == ["e1", "e2"]


async def test_what_no_hint_tells_of_is_found_by_polling(silent):
    session = await silent.one.create(message())
    stream = await following(silent.other, session.id)
    lease = await silent.one.lease(session.id).open()
    await lease.append(running(), take=lease_pb2.TAKE_INPUT_ALL)
    assert [frame.event.seq for frame in await take(stream, 2)] == [1, 2]
    await silent.other.emit(session.id, interrupt())
    assert (await lease.read()).input_waiting.interrupt
    await lease.append(idle(), take=lease_pb2.TAKE_INPUT_ALL, release=True)
    await silent.one.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session.id))
    assert (await drain(stream))[-1].event.HasField("session_deleted")
