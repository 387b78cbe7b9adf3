"""A session of a self-hosted environment that needs a worker has work, in every store."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain import holding, lifecycle, queue
from services.session.domain.accept import accept
from services.session.domain.append import Holder, append
from services.session.domain.work import WorkState
from services.session.domain.work_ports import Queue
from tests.doubles.session_events import (
    custom_result,
    custom_use,
    idle,
    interrupt,
    message,
    running,
    said,
    terminated,
)
from tests.doubles.session_world import WORKSPACE, counting_ids, details

ENV = Queue(WORKSPACE, "env_1")


class Session:
    """A session of a self-hosted environment, moved by hand."""

    def __init__(self, store):
        self.store = store
        self.ids = counting_ids()
        self.ref = None
        self.holder = None

    async def do(self, fn):
        return await self.store.write(fn)

    async def create(self, *events, self_hosted=True):
        made = details(self_hosted=self_hosted)
        snapshot, news = await self.do(
            lambda tx: lifecycle.create(tx, WORKSPACE, made, events, self.ids)
        )
        self.ref = snapshot.state.ref
        return news

    async def accept(self, *events):
        return (await self.do(lambda tx: accept(tx, self.ref, events, self.ids))).news

    async def hold(self):
        opening = lease_pb2.OpenLease(session_id=self.ref.session_id, holder="brain")

        def opened(tx):
            opening.after_seq = tx.state(self.ref).head_seq
            return holding.open_lease(tx, self.ref, opening, [], self.ids)

        generation = (await self.do(opened)).snapshot.state.generation
        self.holder = Holder(self.ref, generation)

    async def append(self, *events, **more):
        request = lease_pb2.AppendEvents(events=events, take=lease_pb2.TAKE_INPUT_NEXT, **more)
        result = await self.do(lambda tx: append(tx, self.holder, [request], self.ids))
        assert result.refusal is None
        return result.news

    async def turn(self, *events):
        """A brain comes, appends and leaves again."""
        await self.hold()
        await self.append(running())
        return await self.append(*events, release=True)

    async def live(self):
        return await self.store.read(lambda tx: tx.live_work(self.ref.session_id))

    async def change(self, fn):
        found = await self.live()
        return await self.do(lambda tx: queue.change(tx, found, fn))

    async def work(self):
        """A worker polls, acknowledges and beats."""
        found = await self.live()
        await self.do(lambda tx: queue.poll(tx, ENV, found, "token"))
        await self.change(lambda item, _state, now: item.acknowledge(now, 300))
        await self.change(lambda item, _state, now: item.beat("NO_HEARTBEAT", now, 300))

    async def stop(self, *, force=True):
        def stop(item, state, now):
            queue.stop(item, state, now, force=force)

        return await self.change(stop)


@pytest.fixture
async def session(store):
    return Session(store)


@pytest.fixture
async def waiting(session):
    """A session that waits for the answer to a call, with an item that a worker has."""
    await session.create(message())
    await session.work()
    await session.turn(custom_use("call_1"), idle("call_1"))
    return session


async def test_session_that_is_created_with_a_message_is_queued_and_news_tell(session):
    assert (await session.create(message())).work == "env_1"
    one = await session.live()
    assert (one.state, one.environment_id, one.session) == (WorkState.QUEUED, "env_1", session.ref)


async def test_session_of_the_cloud_or_without_work_has_no_item(session):
    assert (await session.create(message(), self_hosted=False)).work == ""
    assert await session.live() is None
    assert (await session.create()).work == ""
    assert await session.live() is None


async def test_message_to_a_session_at_rest_queues_a_new_item(session):
    await session.create(message())
    first = await session.live()
    await session.turn(said("well", "e1"), idle())
    await session.stop()
    assert await session.live() is None
    assert (await session.accept(message())).work == "env_1"
    second = await session.live()
    assert second.id != first.id


async def test_message_to_a_session_with_a_live_item_queues_none(session):
    await session.create(message())
    one = await session.live()
    assert (await session.accept(message())).work == ""
    assert await session.live() == one


async def test_call_that_opens_while_nobody_serves_the_session_queues_an_item(session):
    await session.create(message())
    await session.hold()
    await session.append(running())
    await session.stop()
    assert await session.live() is None
    assert (await session.append(said("hm", "e1"))).work == ""
    assert (await session.append(custom_use("call_1"))).work == "env_1"
    assert (await session.live()).state is WorkState.QUEUED


async def test_interrupt_of_a_session_that_nobody_serves_queues_an_item(waiting):
    await waiting.do(lambda tx: tx.remove_work(waiting.ref.session_id))
    assert (await waiting.accept(interrupt())).work == "env_1"
    assert (await waiting.live()).state is WorkState.QUEUED


async def test_answer_to_a_call_queues_none_that_is_there(waiting):
    one = await waiting.live()
    assert (await waiting.accept(custom_result("call_1"))).work == ""
    assert (await waiting.live()).id == one.id


async def test_item_that_is_stopped_while_a_call_is_open_waits_for_the_next_worker(waiting):
    before = await waiting.live()
    assert before.state is WorkState.ACTIVE
    after, news = await waiting.stop()
    assert (after.id, after.state, after.token, news.work) == (
        before.id,
        WorkState.QUEUED,
        None,
        "env_1",
    )
    assert await waiting.live() == after


async def test_item_that_is_stopped_with_no_call_open_has_stopped(session):
    await session.create(message())
    await session.work()
    item, news = await session.stop()
    assert (item.state, news.work) == (WorkState.STOPPED, "")
    with pytest.raises(DroverError) as refusal:
        await session.do(
            lambda tx: queue.change(
                tx, item, lambda item, state, now: queue.stop(item, state, now, force=True)
            )
        )
    assert refusal.value.reason is Reason.CONFLICT


async def test_next_message_does_not_wait_for_a_worker_that_was_asked_to_stop(session):
    await session.create(message())
    await session.work()
    await session.turn(said("well", "e1"), idle())
    before, _ = await session.stop(force=False)
    assert before.state is WorkState.STOPPING
    assert (await session.accept(message())).work == "env_1"
    after = await session.live()
    assert (after.id, after.state, after.token) == (before.id, WorkState.QUEUED, None)


async def test_call_that_opens_does_not_wait_for_a_worker_that_was_asked_to_stop(session):
    await session.create(message())
    await session.work()
    await session.hold()
    await session.append(running())
    await session.stop(force=False)
    assert (await session.append(custom_use("call_1"))).work == "env_1"
    assert (await session.live()).state is WorkState.QUEUED


async def test_worker_that_was_asked_to_stop_may_finish_the_call_it_is_at(session):
    await session.create(message())
    await session.work()
    await session.turn(custom_use("call_1"), custom_use("call_2"), idle("call_1", "call_2"))
    await session.stop(force=False)
    assert (await session.accept(custom_result("call_1"))).work == ""
    assert (await session.live()).state is WorkState.STOPPING
    assert (await session.accept(custom_result("call_2"))).work == "env_1"
    assert (await session.live()).state is WorkState.QUEUED


async def lapse(session, at=1):
    """Has the lease of the session's item run out, and looks."""
    found = dataclasses.replace(await session.live(), lease_expires_at=at)
    await session.do(lambda tx: tx.save_work(found))
    [lapsed] = await session.store.read(lambda tx: tx.lapsed_work(9))
    return await session.do(lambda tx: queue.lapse(tx, lapsed))


async def test_lost_worker_of_a_session_that_needs_one_is_replaced(waiting):
    before = await waiting.live()
    taken, news = await lapse(waiting)
    assert (taken.id, taken.state, news.work) == (before.id, WorkState.QUEUED, "env_1")
    assert (await waiting.live()).heartbeat_at is None
    assert await waiting.store.read(lambda tx: tx.work_of_token(before.token)) is None


async def test_lost_worker_of_a_session_that_runs_is_replaced(session):
    await session.create(message())
    await session.work()
    taken, _ = await lapse(session)
    assert taken.state is WorkState.QUEUED


async def test_lost_worker_of_a_session_at_rest_is_not(session):
    await session.create(message())
    await session.work()
    await session.turn(said("well", "e1"), idle())
    taken, news = await lapse(session)
    assert (taken.state, news.work) == (WorkState.STOPPED, "")
    assert await session.live() is None


async def test_worker_that_was_asked_to_stop_and_is_lost_is_replaced_too(waiting):
    await waiting.stop(force=False)
    taken, _ = await lapse(waiting)
    assert (taken.state, taken.stop_requested_at) == (WorkState.QUEUED, None)


async def test_lease_that_was_prolonged_meanwhile_is_left_alone(waiting):
    found = await waiting.live()
    assert await waiting.do(lambda tx: queue.lapse(tx, found)) == (None, None)


async def test_archived_session_has_no_live_item(session):
    await session.create(message())
    await session.work()
    await session.turn(said("well", "e1"), idle())
    await session.do(lambda tx: lifecycle.archive(tx, session.ref, session.ids))
    assert await session.live() is None
    [ended] = await session.store.read(lambda tx: tx.listed_work(ENV, 9, None))
    assert (ended.state, ended.token) == (WorkState.STOPPED, queue.digest_of("token"))


async def test_terminated_session_has_no_live_item(session):
    await session.create(message())
    await session.hold()
    await session.append(running())
    await session.append(terminated(), release=True)
    assert await session.live() is None


async def test_deleted_session_leaves_no_item(session):
    await session.create(message())
    await session.turn(said("well", "e1"), idle())
    one = await session.live()
    await session.do(lambda tx: lifecycle.delete(tx, session.ref))
    assert await session.store.read(lambda tx: tx.work_item(one.id)) is None
    with pytest.raises(DroverError) as refusal:
        await session.do(lambda tx: queue.change(tx, one, lambda *_: None))
    assert refusal.value.reason is Reason.NOT_FOUND
