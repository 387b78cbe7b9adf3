"""A brain's lease over its stream (lease.proto)."""

from __future__ import annotations

import asyncio

from chassis.errors import DroverError, Reason
from drover.event.v1 import usage_pb2
from drover.session.v1 import lease_pb2, session_pb2
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_events import (
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    terminated,
    tool_result,
)
from tests.doubles.session_stack import refusal, running_service
from tests.doubles.session_world import kinds


async def test_a_lease_opens_with_the_session_and_its_log(service):
    session = await service.create(message("one"))
    first = await service.lease(session.id).open()
    assert first.generation == 1
    assert first.opened.session.environment == session.environment
    assert first.opened.input.message
    assert first.log == []
    await first.append(running(), said("a" * 1000), take=2)
    again = await service.lease(session.id, generation=1).open()
    assert kinds(again.log) == ["user_message", "session_status_running", "agent_message"]
    later = await service.lease(session.id, generation=1, after_seq=2).open()
    assert kinds(later.log) == ["agent_message"]


async def test_a_long_log_comes_in_slices(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    for _ in range(13):
        await lease.send(*(said("x") for _ in range(100)))
    for _ in range(13):
        await lease.acknowledged()
    again = await service.lease(session.id, generation=1).open()
    assert [event.seq for event in again.log] == list(range(1, 1301))


async def test_what_comes_with_the_opening_is_done_and_answered_with_it(service):
    session = await service.create(message("one"))
    stream = service.stream(session.id)
    await stream.initial_metadata()
    take = lease_pb2.AppendEvents(take=lease_pb2.TAKE_INPUT_NEXT)
    lease = await service.lease(session.id).open(take, lease_pb2.AppendEvents(events=[running()]))
    first, second = await lease.acknowledged(), await lease.acknowledged()
    assert kinds(first.taken) == ["user_message"]
    assert (first.head_seq, second.head_seq) == (1, 2)
    assert lease.messages == 1
    assert [(await stream.read()).event.seq for _ in range(2)] == [1, 2]
    assert stream.messages == 1  # one commit
    assert (await lease.append(said("next"))).head_seq == 3


async def test_what_comes_with_the_opening_is_acknowledged_behind_the_whole_log(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    await lease.append(running(), *(said("x") for _ in range(700)), idle(), take=2, release=True)
    again = await service.lease(session.id).open(lease_pb2.AppendEvents(events=[running()]))
    acknowledged = await again.acknowledged()
    assert [event.seq for event in again.log] == list(range(1, again.opened.head_seq + 1))
    assert acknowledged.head_seq == again.opened.head_seq + 1


async def test_a_refusal_of_what_comes_with_the_opening_leaves_the_lease_held(service):
    session = await service.create(message())
    refused = lease_pb2.AppendEvents(events=[message("not a brain's")])
    lease = await service.lease(session.id).open(refused)
    assert (await refusal(lease.acknowledged())).reason is Reason.INVALID_ARGUMENT
    assert (await service.events(session.id)).data[0].seq == 0
    assert (await service.lease(session.id, generation=1).open()).generation == 1


async def test_a_held_lease_takes_no_append_that_comes_with_an_opening(service):
    session = await service.create(message())
    held = await service.lease(session.id).open()
    take = lease_pb2.AppendEvents(take=lease_pb2.TAKE_INPUT_NEXT)
    other = service.lease(session.id, holder="other")
    assert (await refusal(other.open(take))).reason is Reason.LEASE_HELD
    assert kinds((await held.append(take=2)).taken) == ["user_message"]


async def test_appends_are_pipelined_and_acknowledged_in_order(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    for number in range(50):
        await lease.send(said(str(number)))
    acknowledged = [await lease.acknowledged() for _ in range(50)]
    assert [one.request_id for one in acknowledged] == list(range(1, 51))
    assert [one.head_seq for one in acknowledged] == list(range(1, 51))
    log = (await service.events(session.id, types=["agent.message"])).data
    assert [event.agent_message.content[0].text.text for event in log] == [
        str(number) for number in range(50)
    ]


async def test_the_first_refusal_ends_the_stream_and_nothing_behind_it_is_kept(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    for events in ([said("kept")], [tool_result("nowhere")], [said("never")]):
        await lease.send(*events)
    assert (await lease.acknowledged()).request_id == 1
    assert (await refusal(lease.acknowledged())).reason is Reason.INVALID_ARGUMENT
    log = (await service.events(session.id, before_seq=1000)).data
    assert [event.agent_message.content[0].text.text for event in log] == ["kept"]


async def test_two_brains_with_the_old_generation_cannot_append(service):
    session = await service.create(message())
    old = await service.lease(session.id, holder="old").open()
    twin = await service.lease(session.id, holder="twin", generation=1).open()
    # The old stream is told as soon as the lease is taken up elsewhere.
    assert (await refusal(old.acknowledged())).reason is Reason.LEASE_LOST
    await twin.append(running(), take=2)
    await twin.append(idle(), release=True)
    await service.emit(session.id, message())
    new = await service.lease(session.id, holder="new").open()
    assert new.generation == 2
    for stale in (
        service.lease(session.id, generation=1).open(),
        service.emit(session.id, said("late"), generation=1),
    ):
        assert (await refusal(stale)).reason is Reason.LEASE_LOST
    await new.append(said("fresh"))


async def test_a_lease_that_lives_is_held(service):
    session = await service.create(message())
    await service.lease(session.id).open()
    error = await refusal(service.lease(session.id).open())
    assert (error.reason, error.rule.grpc) == (Reason.LEASE_HELD, "FAILED_PRECONDITION")


async def test_of_many_that_open_at_once_one_holds(service):
    session = await service.create(message())
    for generation in range(1, 21):
        leases = [service.lease(session.id, holder=str(n)) for n in range(10)]
        results = await asyncio.gather(*(one.open() for one in leases), return_exceptions=True)
        holders = [one for one in results if not isinstance(one, DroverError)]
        refused = [one.reason for one in results if isinstance(one, DroverError)]
        assert len(holders) == 1
        assert set(refused) == {Reason.LEASE_HELD}
        assert holders[0].generation == generation
        await holders[0].append(running(), take=3)
        assert (await holders[0].append(idle(), release=True)).released
    log = (await service.events(session.id)).data
    assert [event.seq for event in log] == list(range(1, len(log) + 1))


async def test_input_is_told_to_the_brain_at_once(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    await lease.append(running(), custom_use("c1"), take=2)
    await service.emit(session.id, interrupt())
    assert (await lease.read()).input_waiting.interrupt
    await service.emit(session.id, custom_result("c1"))
    assert (await lease.read()).input_waiting.log_grown
    acknowledged = await lease.append(take=1)
    assert kinds(acknowledged.taken) == ["user_interrupt"]
    assert kinds(acknowledged.others) == ["user_custom_tool_result"]
    assert not acknowledged.input.interrupt


async def test_a_refused_release_keeps_the_stream(service):
    session = await service.create(message("one"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=2)
    await service.emit(session.id, message("two"))
    refused = await lease.append(idle(), release=True)
    assert refused.input_pending
    assert (await lease.append(take=2)).taken[0].user_message.content[0].text.text == "two"
    released = await lease.append(idle(), release=True)
    assert released.released
    assert await lease.read() is None
    assert kinds((await service.events(session.id)).data).count("session_status_idle") == 1
    assert (await service.get(session.id)).status == session_pb2.SESSION_STATUS_IDLE


async def test_renewal_answers_when_the_lease_ends(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    renewed = await lease.renew()
    before = lease.opened.expire_time.ToMicroseconds()
    assert renewed.expire_time.ToMicroseconds() > before


async def test_usage_and_status_are_on_the_session_before_the_acknowledgement(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    usage = usage_pb2.UsageSnapshot(input_tokens=5)
    await lease.append(running(), take=2)
    assert (await service.get(session.id)).status == session_pb2.SESSION_STATUS_RUNNING
    await lease.append(idle(), usage=usage, release=True)
    after = await service.get(session.id)
    assert after.status == session_pb2.SESSION_STATUS_IDLE
    assert after.usage.input_tokens == 5
    assert after.usage.active_seconds > 0


async def test_archive_ends_the_lease_of_a_brain_that_came_for_nothing(service):
    session = await service.create()
    lease = await service.lease(session.id).open()
    await service.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=session.id))
    assert (await refusal(lease.acknowledged())).reason is Reason.LEASE_LOST


async def test_a_brain_that_terminates_the_session_ends_its_streams(service):
    session = await service.create(message())
    stream = service.stream(session.id)
    await stream.initial_metadata()
    lease = await service.lease(session.id).open()
    await lease.append(running(), terminated(), take=3, release=True)
    assert kinds([frame.event async for frame in stream])[-1] == "session_status_terminated"
    assert (await service.get(session.id)).status == session_pb2.SESSION_STATUS_TERMINATED


async def test_the_first_message_must_open_and_only_it(service):
    session = await service.create(message())
    lease = service.lease(session.id)
    await lease.send(said("hi"))
    assert (await refusal(lease.read())).message.startswith("open: ")
    lease = await service.lease(session.id).open()
    await lease.send_open()
    assert (await refusal(lease.read())).message.startswith("open: ")


async def test_a_restarted_service_takes_up_a_live_lease(tmp_path):
    async with running_service(tmp_path) as service:
        session = await service.create(message())
        lease = await service.lease(session.id).open()
        await lease.append(running(), said("before", "e1"), take=2)
    async with running_service(tmp_path) as service:
        assert (await refusal(service.lease(session.id).open())).reason is Reason.LEASE_HELD
        again = await service.lease(session.id, generation=1, after_seq=1).open()
        assert kinds(again.log) == ["session_status_running", "agent_message"]
        acknowledged = await again.append(said("before", "e1"))  # was it kept? it was
        assert acknowledged.head_seq == 3
        assert (await again.append(idle(), release=True)).released
