"""Waking brains over gRPC: at once, and another one when one fails."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2
from tests.doubles.session_events import idle, message, running, said
from tests.doubles.session_stack import DEADLINE, Lease, echo_turns, running_service
from tests.doubles.session_world import kinds


async def idle_again(service, session_id, turns=1):
    """Waits until so many turns have ended."""
    stream = service.stream(session_id)
    await stream.initial_metadata()
    log = list((await service.events(session_id)).data)
    async with asyncio.timeout(DEADLINE):
        while kinds(log).count("session_status_idle") < turns:
            event = (await stream.read()).event
            if event.seq and all(event.id != one.id for one in log):
                log.append(event)
    stream.cancel()
    return log


async def test_a_message_wakes_a_brain_that_answers_it(tmp_path):
    async with running_service(tmp_path, works=[echo_turns]) as service:
        session = await service.create()
        for turn in (1, 2, 3):
            await service.emit(session.id, message(f"turn {turn}"))
            log = await idle_again(service, session.id, turn)
        said = [
            event.agent_message.content[0].text.text
            for event in log
            if event.HasField("agent_message")
        ]
        assert said == ["turn 1", "turn 2", "turn 3"]


async def test_initial_events_wake_a_brain(tmp_path):
    async with running_service(tmp_path, works=[echo_turns]) as service:
        session = await service.create(message("one"), message("two"))
        log = await idle_again(service, session.id)
        assert kinds(log).count("agent_message") == 2
        assert (await service.get(session.id)).status == session_pb2.SESSION_STATUS_IDLE


async def test_a_brain_that_dies_in_a_turn_is_followed_by_the_next_at_once(tmp_path):
    async def die(stub, session_id):
        lease = await Lease(stub, session_id).open()
        await lease.append(running(), said("half a turn"), take=2)
        raise DroverError(Reason.UNAVAILABLE, "killed")

    async def go_on(stub, session_id):
        lease = await Lease(stub, session_id).open()
        assert kinds(lease.log)[-1] == "agent_message"
        await lease.append(said("the other half"), idle(), take=3, release=True)

    async with running_service(tmp_path, works=[die, go_on]) as service:
        session = await service.create(message())
        log = await idle_again(service, session.id)
        assert kinds(log).count("agent_message") == 2
        assert [len(brain.woken) for brain in service.brains] == [1, 1]


async def test_a_brain_that_leaves_without_giving_the_lease_back_has_lost_it(tmp_path):
    left = []

    async def leave(stub, session_id):
        if not left:
            left.append(await Lease(stub, session_id).open())
            await left[0].append(running(), take=2)
            return
        await echo_turns(stub, session_id)

    async with running_service(tmp_path, works=[leave]) as service:
        session = await service.create(message())
        await idle_again(service, session.id)
        with pytest.raises(DroverError) as caught:
            await left[0].acknowledged()
        assert caught.value.reason is Reason.LEASE_LOST


async def test_a_full_brain_is_passed_over(tmp_path):
    async def full(_stub, _session_id):
        raise DroverError(Reason.RESOURCE_EXHAUSTED, "full")

    async with running_service(tmp_path, works=[full, echo_turns]) as service:
        for _ in range(4):
            session = await service.create(message())
            await idle_again(service, session.id)
        assert len(service.brains[1].woken) == 4


async def test_the_brain_that_knows_a_session_is_asked_first(tmp_path):
    async with running_service(tmp_path, works=[echo_turns] * 3) as service:
        session = await service.create()
        for turn in range(1, 6):
            await service.emit(session.id, message())
            await idle_again(service, session.id, turn)
        assert sorted(len(brain.woken) for brain in service.brains) == [0, 0, 5]


async def test_sessions_that_need_a_brain_get_one_when_the_service_starts(tmp_path):
    async with running_service(tmp_path) as service:
        session = await service.create(message("before"))
    async with running_service(tmp_path, works=[echo_turns]) as service:
        log = await idle_again(service, session.id)
        assert log[-2].agent_message.content[0].text.text == "before"


async def test_a_live_lease_is_left_alone_when_the_service_starts(tmp_path):
    async with running_service(tmp_path) as service:
        session, other = await service.create(message()), await service.create(message())
        await (await service.lease(session.id).open()).append(running(), take=2)
    async with running_service(tmp_path, works=[echo_turns]) as service:
        await idle_again(service, other.id)  # so the sweep has been
        assert service.brains[0].woken == [other.id]
        again = await service.lease(session.id, generation=1).open()
        assert (await again.append(idle(), release=True)).released
