"""Workers poll for the work of self-hosted environments, have it on a lease, and give it back."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from contextlib import AsyncExitStack

import pytest

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.api.v1.metadata_pb2 import MetadataPatch
from drover.session.v1 import lease_pb2, session_service_pb2
from drover.work.v1 import work_pb2
from drover.work.v1 import work_service_pb2 as pb
from drover.work.v1.work_service_pb2_grpc import WorkServiceStub
from tests.doubles.request_keys import answered, counted
from tests.doubles.session_events import custom_use, idle, message, running, said, tool_use
from tests.doubles.session_registry import ENVIRONMENT_ID
from tests.doubles.session_replicas import running_replicas
from tests.doubles.session_stack import DEADLINE, TOKEN, refusal, running_service

OF = {"environment_id": ENVIRONMENT_ID}
LATER = 60_000
"""Milliseconds in which no test's item is taken from a worker that was slow to acknowledge it."""


class Farm:
    """A session service and a worker's view of it."""

    def __init__(self, service, work):
        self.service = service
        self.work = work
        service.environments.environment.config.self_hosted.SetInParent()

    async def poll(self, **fields):
        answer = await self.work.PollWork(pb.PollWorkRequest(**OF, **fields))
        return answer.work if answer.HasField("work") else None

    async def claimed(self, **fields):
        """An item that a worker works on, and the answer to its first heartbeat."""
        item = await self.poll(block_ms=999, **fields)
        await self.work.AckWork(pb.AckWorkRequest(**OF, work_id=item.id))
        return item, await self.beat(item, "NO_HEARTBEAT")

    async def beat(self, item, expected=None, **fields):
        return await self.work.HeartbeatWork(
            pb.HeartbeatWorkRequest(
                **OF, work_id=item.id, expected_last_heartbeat=expected, **fields
            )
        )

    async def get(self, item):
        return (await self.work.GetWork(pb.GetWorkRequest(**OF, work_id=item.id))).work

    async def stop(self, item, *, force=True):
        request = pb.StopWorkRequest(**OF, work_id=item.id, force=force)
        return (await self.work.StopWork(request)).work

    async def stats(self):
        return (await self.work.GetWorkStats(pb.GetWorkStatsRequest(**OF))).stats

    async def opens(self, item):
        """What the token in an item's secret opens."""
        token = json.loads(base64.urlsafe_b64decode(item.secret))["sessions_token"]
        digest = hashlib.sha256(token.encode()).digest()
        return await self.work.AuthenticateWorkItem(pb.AuthenticateWorkItemRequest(digest=digest))

    async def turn(self, session_id, *events):
        """A brain comes, appends and leaves."""
        lease = await self.service.lease(session_id).open()
        await lease.append(running(), take=lease_pb2.TAKE_INPUT_NEXT)
        assert (await lease.append(*events, release=True)).released
        await lease.close()


async def connected(stack, service):
    channel = open_channel(service.address, Secret(TOKEN))
    stack.push_async_callback(channel.close, None)
    return Farm(service, WorkServiceStub(channel))


@pytest.fixture
async def farm(tmp_path):
    async with running_service(tmp_path) as service, AsyncExitStack() as stack:
        yield await connected(stack, service)


async def test_session_that_runs_is_given_to_the_worker_that_polls(farm):
    session = await farm.service.create(message())
    item = await farm.poll()
    assert (item.data.session.id, item.environment_id) == (session.id, ENVIRONMENT_ID)
    assert item.state == work_pb2.WORK_STATE_QUEUED
    opened = await farm.opens(item)
    assert (opened.workspace_id, opened.session_id) == ("wrkspc_default", session.id)
    assert (opened.environment_id, opened.work_id) == (ENVIRONMENT_ID, item.id)
    assert await farm.poll(reclaim_older_than_ms=LATER) is None


async def test_poll_answers_at_once_or_when_its_time_is_up(farm):
    loop = asyncio.get_running_loop()
    for given, least in (({}, 0.0), ({"block_ms": 200}, 0.2)):
        before = loop.time()
        assert await farm.poll(**given) is None
        assert loop.time() - before >= least


async def test_poll_that_waits_is_woken_and_keeps_nobody_from_writing(farm):
    session_id, polls = await polled(farm, farm.service, 3)
    items = [one for one in await asyncio.gather(*polls) if one is not None]
    assert [one.data.session.id for one in items] == [session_id]


async def polled(farm, service, count):
    """A session to which a message was sent while so many polls waited; and the polls."""
    waits = {"block_ms": 999, "reclaim_older_than_ms": LATER}
    async with asyncio.timeout(DEADLINE):
        while True:
            session = await service.create()
            polls = [asyncio.create_task(farm.poll(**waits)) for _ in range(count)]
            await service.emit(session.id, message())
            if not any(poll.done() and poll.result() is None for poll in polls):
                return session.id, polls
            # It took longer than a poll may wait.
            if not any([await poll for poll in polls]):
                assert await farm.poll(**waits) is not None


@pytest.mark.parametrize("given", [{"block_ms": 0}, {"block_ms": 1000}, {"block_ms": -1}])
async def test_poll_for_no_time_or_for_too_long_is_refused(farm, given):
    error = await refusal(farm.poll(**given))
    assert (error.reason, error.message.split(":")[0]) == (Reason.INVALID_ARGUMENT, "block_ms")


async def test_item_that_nobody_acknowledged_is_given_to_the_next(farm):
    await farm.service.create(message())
    first = await farm.poll(worker_id="a")
    again = await farm.poll(worker_id="b", reclaim_older_than_ms=0)
    assert again.id == first.id
    assert (await refusal(farm.opens(first))).reason is Reason.UNAUTHENTICATED
    assert (await farm.opens(again)).work_id == first.id


async def test_item_goes_its_way(farm):
    session = await farm.service.create(message())
    item, beat = await farm.claimed()
    assert (beat.lease_extended, beat.ttl_seconds) == (True, 300)
    assert beat.state == work_pb2.WORK_STATE_ACTIVE
    kept = await farm.get(item)
    assert not kept.HasField("secret")
    assert kept.latest_heartbeat_at.ToJsonString() == beat.last_heartbeat
    assert kept.acknowledged_at.ToMicroseconds() <= kept.started_at.ToMicroseconds()
    await farm.turn(session.id, said("well", "e1"), idle())
    stopping = await farm.stop(item, force=False)
    assert stopping.state == work_pb2.WORK_STATE_STOPPING
    told = await farm.beat(item, "whatever")
    assert (told.lease_extended, told.state) == (False, work_pb2.WORK_STATE_STOPPING)
    assert (await farm.stop(item)).state == work_pb2.WORK_STATE_STOPPED
    error = await refusal(farm.stop(item))
    assert (error.reason, error.rule.http) == (Reason.CONFLICT, 409)
    # Its worker may still ask what has become of it.
    assert (await farm.opens(item)).state == work_pb2.WORK_STATE_STOPPED
    assert not (await farm.beat(item)).lease_extended


async def test_heartbeat_of_whoever_does_not_hold_the_lease_is_refused(farm):
    await farm.service.create(message())
    item, beat = await farm.claimed()
    error = await refusal(farm.beat(item, "NO_HEARTBEAT"))
    assert error.error_code == "heartbeat_precondition_failed"
    assert json.loads(error.metadata["current_state"])["last_heartbeat"] == beat.last_heartbeat
    later = await farm.beat(item, beat.last_heartbeat, desired_ttl_seconds=7)
    assert (later.ttl_seconds, later.lease_extended) == (7, True)
    assert later.last_heartbeat > beat.last_heartbeat


async def test_heartbeat_whose_answer_was_lost_gets_it_again(farm):
    await farm.service.create(message())
    item, beat = await farm.claimed()
    request = pb.HeartbeatWorkRequest(
        **OF, work_id=item.id, expected_last_heartbeat=beat.last_heartbeat
    )
    first, _ = await answered(farm.work.HeartbeatWork, request, counted("beat", 0))
    again, replayed = await answered(farm.work.HeartbeatWork, request, counted("beat", 1))
    assert (first, replayed) == (again, True)
    assert await farm.beat(item, first.last_heartbeat)


async def test_lost_worker_is_replaced_while_its_session_needs_one(farm):
    session = await farm.service.create(message())
    item, beat = await farm.claimed()
    await farm.turn(session.id, custom_use("e1"), idle("e1"))
    await farm.beat(item, beat.last_heartbeat, desired_ttl_seconds=1)
    async with asyncio.timeout(DEADLINE):
        while (again := await farm.poll(block_ms=999)) is None:
            pass
    assert again.id == item.id
    assert not again.HasField("started_at")
    error = await refusal(farm.beat(item, beat.last_heartbeat))
    assert json.loads(error.metadata["current_state"])["state"] == "queued"
    assert (await refusal(farm.opens(item))).reason is Reason.UNAUTHENTICATED


async def test_item_that_is_stopped_with_an_open_call_goes_to_the_next_worker(farm):
    session = await farm.service.create(message())
    item, _ = await farm.claimed()
    await farm.turn(session.id, custom_use("e1"), idle("e1"))
    assert (await farm.stop(item)).state == work_pb2.WORK_STATE_QUEUED
    assert (await farm.poll()).id == item.id


async def test_stats_tell_of_the_queue_and_of_those_who_poll(farm):
    empty = await farm.stats()
    assert (empty.depth, empty.pending, empty.workers_polling) == (0, 0, 0)
    assert not empty.HasField("oldest_queued_at")
    for _ in range(3):
        await farm.service.create(message())
    first = await farm.poll(worker_id="a")
    await farm.poll(worker_id="b", reclaim_older_than_ms=LATER)
    await farm.poll(reclaim_older_than_ms=LATER)
    await farm.work.AckWork(pb.AckWorkRequest(**OF, work_id=first.id))
    stats = await farm.stats()
    assert (stats.depth, stats.pending, stats.workers_polling) == (0, 2, 2)
    assert stats.oldest_queued_at.ToMicroseconds() > first.created_at.ToMicroseconds()
    unknown = pb.GetWorkStatsRequest(environment_id="env_none")
    error = await refusal(farm.work.GetWorkStats(unknown))
    assert error.reason is Reason.ENVIRONMENT_NOT_FOUND


async def test_items_are_listed_from_the_newest_to_the_last_page(farm):
    made = [(await farm.service.create(message())).id for _ in range(5)]
    found, page = [], None
    while True:
        answer = await farm.work.ListWork(pb.ListWorkRequest(**OF, limit=2, page=page))
        found += [one.data.session.id for one in answer.data]
        if not answer.HasField("next_page"):
            break
        page = answer.next_page
    assert found == made[::-1]
    other = pb.ListWorkRequest(environment_id="env_2", page=page)
    assert (await refusal(farm.work.ListWork(other))).reason is Reason.INVALID_ARGUMENT


async def test_metadata_is_patched(farm):
    await farm.service.create(message())
    item = await farm.poll()

    async def patch(**change):
        request = pb.UpdateWorkRequest(**OF, work_id=item.id, metadata=MetadataPatch(**change))
        return dict((await farm.work.UpdateWork(request)).work.metadata)

    assert await patch(set={"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    assert await patch(set={"c": "3"}, remove=["a"]) == {"b": "2", "c": "3"}
    assert (await refusal(patch(set={"k" * 65: "v"}))).error_code == "invalid_metadata"


async def test_item_of_another_environment_is_not_found(farm):
    await farm.service.create(message())
    item = await farm.poll()
    elsewhere = {"environment_id": "env_2", "work_id": item.id}
    for call in (
        farm.work.GetWork(pb.GetWorkRequest(**elsewhere)),
        farm.work.AckWork(pb.AckWorkRequest(**elsewhere)),
        farm.work.HeartbeatWork(pb.HeartbeatWorkRequest(**elsewhere)),
        farm.work.StopWork(pb.StopWorkRequest(**elsewhere)),
    ):
        assert (await refusal(call)).reason is Reason.NOT_FOUND


async def test_session_at_its_end_has_no_work_left(farm):
    session = await farm.service.create(message())
    item, _ = await farm.claimed()
    await farm.turn(session.id, said("well", "e1"), idle())
    await farm.service.stub.ArchiveSession(
        session_service_pb2.ArchiveSessionRequest(session_id=session.id)
    )
    assert (await farm.get(item)).state == work_pb2.WORK_STATE_STOPPED
    await farm.service.stub.DeleteSession(
        session_service_pb2.DeleteSessionRequest(session_id=session.id)
    )
    assert (await refusal(farm.get(item))).reason is Reason.NOT_FOUND


async def test_poll_at_one_replica_gets_what_another_commits(tmp_path, postgres):
    url = postgres.new_database()
    async with running_replicas(tmp_path, url) as replicas, AsyncExitStack() as stack:
        farm = await connected(stack, replicas.one)
        session_id, [polling] = await polled(farm, replicas.other, 1)
        assert (await polling).data.session.id == session_id


async def test_imported_session_that_waits_for_an_answer_is_queued(farm):
    session = await farm.service.create(message())
    await farm.turn(session.id, tool_use("e1"), idle("e1"))
    stub, of = farm.service.stub, {"session_id": session.id}
    exporting = stub.ExportSession(session_service_pb2.ExportSessionRequest(**of))
    records = [record async for answer in exporting for record in answer.records]
    await stub.DeleteSession(session_service_pb2.DeleteSessionRequest(**of))
    assert await farm.poll() is None

    async def stream():
        yield session_service_pb2.ImportSessionRequest(records=records)

    await stub.ImportSession(stream())
    assert (await farm.poll()).data.session.id == session.id
