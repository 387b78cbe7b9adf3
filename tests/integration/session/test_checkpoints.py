"""Checkpoints over gRPC: kept for brains of their format, and given with the lease."""

from __future__ import annotations

import grpc
import pytest

from chassis.errors import DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.session.v1 import checkpoint_service_pb2 as pb
from drover.session.v1 import session_service_pb2
from drover.session.v1.checkpoint_pb2 import Checkpoint, CheckpointFormat
from drover.session.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tests.doubles.session_events import idle, running, said
from tests.doubles.session_stack import TOKEN

STANDARD = CheckpointFormat(harness="standard", version="1")
OTHER = CheckpointFormat(harness="standard", version="2")
LENGTH = 150


@pytest.fixture
async def checkpoints(service):
    async with open_channel(service.address, Secret(TOKEN)) as channel:
        yield CheckpointServiceStub(channel)


async def save(checkpoints, session_id, generation, *, seq=100, data=b"folded", kept_as=STANDARD):
    kept = Checkpoint(format=kept_as, seq=seq, data=data)
    try:
        await checkpoints.SaveCheckpoint(
            pb.SaveCheckpointRequest(session_id=session_id, generation=generation, checkpoint=kept)
        )
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


async def grown(service, length=LENGTH):
    """A session at rest with so many events, and the generation under which they were written."""
    session = await service.create()
    lease = await service.lease(session.id).open()
    texts = [said(f"text {number}") for number in range(length - 2)]
    await lease.append(running(), *texts, idle(), release=True)
    return session.id, lease.generation


async def refusal(saving):
    with pytest.raises(DroverError) as caught:
        await saving
    return caught.value.reason


async def test_brain_that_comes_anew_gets_the_checkpoint_and_the_log_behind_it(
    service, checkpoints
):
    session_id, generation = await grown(service)
    await save(checkpoints, session_id, generation, data=b"\0" * (1 << 20))
    lease = await service.lease(session_id, formats=[OTHER, STANDARD]).open()
    assert lease.opened.checkpoint == Checkpoint(format=STANDARD, seq=100, data=b"\0" * (1 << 20))
    assert [event.seq for event in lease.log] == list(range(101, LENGTH + 1))


async def test_checkpoint_at_the_head_leaves_nothing_to_be_sent(service, checkpoints):
    session_id, generation = await grown(service)
    await save(checkpoints, session_id, generation, seq=LENGTH)
    lease = await service.lease(session_id, formats=[STANDARD]).open()
    assert lease.opened.checkpoint.seq == lease.opened.head_seq
    assert lease.messages == 1


@pytest.mark.parametrize("formats", [(), (OTHER,), (CheckpointFormat(harness="x", version="1"),)])
async def test_brain_that_cannot_read_it_gets_the_whole_log(service, checkpoints, formats):
    session_id, generation = await grown(service)
    await save(checkpoints, session_id, generation)
    lease = await service.lease(session_id, formats=formats).open()
    assert not lease.opened.HasField("checkpoint")
    assert [event.seq for event in lease.log] == list(range(1, LENGTH + 1))


async def test_brain_that_has_seen_some_of_the_log_gets_no_checkpoint(service, checkpoints):
    session_id, generation = await grown(service)
    await save(checkpoints, session_id, generation)
    lease = await service.lease(session_id, after_seq=20, formats=[STANDARD]).open()
    assert not lease.opened.HasField("checkpoint")
    assert len(lease.log) == LENGTH - 20


async def test_holder_may_keep_one_too_and_read_on_from_it_on_a_new_stream(service, checkpoints):
    session_id, _ = await grown(service)
    lease = await service.lease(session_id).open()
    await save(checkpoints, session_id, lease.generation, seq=120)
    again = service.lease(session_id, generation=lease.generation, formats=[STANDARD])
    assert len((await again.open()).log) == LENGTH - 120


async def test_brain_that_has_lost_the_lease_keeps_none(service, checkpoints):
    session_id, generation = await grown(service)
    await service.lease(session_id).open()
    assert await refusal(save(checkpoints, session_id, generation)) is Reason.LEASE_LOST


async def test_position_that_the_log_has_not_reached_is_refused(service, checkpoints):
    session_id, generation = await grown(service)
    saving = save(checkpoints, session_id, generation, seq=LENGTH + 1)
    assert await refusal(saving) is Reason.INVALID_ARGUMENT


async def test_fork_and_archive_have_none(service, checkpoints):
    session_id, generation = await grown(service)
    await save(checkpoints, session_id, generation)
    fork = await service.stub.ForkSession(
        session_service_pb2.ForkSessionRequest(session_id=session_id)
    )
    lease = await service.lease(fork.session.id, formats=[STANDARD]).open()
    assert not lease.opened.HasField("checkpoint")
    request = session_service_pb2.ArchiveSessionRequest(session_id=session_id)
    await service.stub.ArchiveSession(request)
    assert await refusal(save(checkpoints, session_id, generation)) is Reason.ARCHIVED
