"""Work items in every store: there is one where a session needs a worker, and one worker has it."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain import holding, lifecycle, queue
from services.session.domain.accept import accept
from services.session.domain.append import Holder, append
from services.session.domain.session import MICROS
from services.session.domain.work import WorkItem, WorkState
from services.session.domain.work_ports import Queue, WorkStats
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
from tests.doubles.session_rows import REF, create, state
from tests.doubles.session_world import WORKSPACE, counting_ids, details

ENV = Queue(WORKSPACE, "env_1")
ELSEWHERE = Queue(WORKSPACE, "env_2")


def item(work_id="work_1", session_id="sesn_1", *, at=1, environment_id="env_1", **fields):
    return WorkItem(
        work_id, dataclasses.replace(REF, session_id=session_id), environment_id, at, at, **fields
    )


async def add(store, *items):
    """Adds items, and the sessions that they are of."""

    def write(tx):
        for one in items:
            tx.add_work(one)

    for session_id in sorted({one.session.session_id for one in items}):
        await create(store, state(session_id, self_hosted=True))
    await store.write(write)


# what a store keeps


async def test_item_is_kept_with_every_field(store):
    full = item(
        state=WorkState.STOPPING,
        handed_out=2,
        handed_at=3,
        acknowledged_at=4,
        started_at=5,
        heartbeat_at=6,
        stop_requested_at=7,
        stopped_at=8,
        lease_expires_at=9,
        ttl_seconds=10,
        token=b"digest",
        worker_id="wörker",
        metadata={"k": "v"},
        setbacks=11,
        seen_seq=12,
        free_at=13,
    )
    await add(store, full)
    assert await store.read(lambda tx: tx.work_item("work_1")) == full
    changed = dataclasses.replace(item(), queued_at=20, state=WorkState.STOPPED)
    await store.write(lambda tx: tx.save_work(changed))
    assert await store.read(lambda tx: tx.work_item("work_1")) == changed
    assert await store.read(lambda tx: tx.work_item("work_2")) is None


async def test_a_transaction_sees_its_own_items(store):
    await create(store, state(self_hosted=True))

    def write(tx):
        tx.add_work(item())
        assert tx.live_work("sesn_1") == item()
        one = tx.work_item("work_1")
        one.stop(5)
        tx.save_work(one)
        assert tx.live_work("sesn_1") is None
        tx.add_work(item("work_2"))
        assert tx.live_work("sesn_1").id == "work_2"
        assert [one.id for one in tx.listed_work(ENV, 10, None)] == ["work_2", "work_1"]

    await store.write(write)


async def test_item_is_found_by_the_token_of_its_last_poll_alone(store):
    await add(store, item(token=b"first"))
    await store.write(lambda tx: tx.save_work(item(token=b"second")))
    assert await store.read(lambda tx: tx.work_of_token(b"first")) is None
    found = await store.read(lambda tx: tx.work_of_token(b"second"))
    assert found.id == "work_1"


async def test_what_waits_comes_in_the_order_in_which_it_was_queued(store):
    await add(
        store,
        item("work_1", "sesn_1", at=3),
        item("work_2", "sesn_2", at=1),
        item("work_3", "sesn_3", at=2, handed_at=50),
        item("work_4", "sesn_4", at=0, state=WorkState.ACTIVE),
        item("work_5", "sesn_5", at=0, environment_id="env_2"),
        item("work_6", "sesn_6", at=0, free_at=1 << 60),
    )

    async def waiting(queue, before, limit=10):
        return [
            one.id for one in await store.read(lambda tx: tx.waiting_work(queue, before, limit))
        ]

    assert await waiting(ENV, 49) == ["work_2", "work_1"]
    assert await waiting(ENV, 50) == ["work_2", "work_3", "work_1"]
    assert await waiting(ENV, 50, limit=1) == ["work_2"]
    assert await waiting(ELSEWHERE, 50) == ["work_5"]
    assert await waiting(Queue("another", "env_1"), 50) == []


async def test_items_are_listed_from_the_newest_page_by_page(store):
    await add(store, *(item(f"work_{n}", f"sesn_{n}", at=n // 2) for n in range(5)))

    async def page(limit, key=None):
        return await store.read(lambda tx: tx.listed_work(ENV, limit, key))

    assert [one.id for one in await page(3)] == ["work_4", "work_3", "work_2"]
    last = (await page(3))[-1]
    rest = await page(3, (last.created_at, last.id))
    assert [one.id for one in rest] == ["work_1", "work_0"]


async def test_stats_tell_what_waits_what_was_handed_out_and_since_when(store):
    assert await store.read(lambda tx: tx.work_stats(ENV)) == WorkStats()
    await add(
        store,
        item("work_1", "sesn_1", at=30),
        item("work_2", "sesn_2", at=20, handed_at=50),
        item("work_3", "sesn_3", at=10, state=WorkState.STARTING, handed_at=50),
        item("work_4", "sesn_4", at=5, environment_id="env_2"),
    )
    assert await store.read(lambda tx: tx.work_stats(ENV)) == WorkStats(1, 1, 20)
    assert await store.read(lambda tx: tx.work_stats()) == WorkStats(2, 1, 5)


async def test_items_lapse_with_their_lease(store):
    now = await store.read(lambda tx: tx.now())
    leased = {"state": WorkState.ACTIVE}
    await add(
        store,
        item("work_1", "sesn_1", lease_expires_at=now - 1, **leased),
        item("work_2", "sesn_2", lease_expires_at=now - 2, **leased),
        item("work_3", "sesn_3", lease_expires_at=now + 60 * MICROS, **leased),
        item("work_4", "sesn_4"),
    )
    assert [one.id for one in await store.read(lambda tx: tx.lapsed_work(9))] == [
        "work_2",
        "work_1",
    ]
    assert len(await store.read(lambda tx: tx.lapsed_work(1))) == 1


async def test_pollers_count_for_as_long_as_they_poll(store):
    for worker in ("a", "b", "a"):
        await store.write(lambda tx, worker=worker: tx.note_poller("env_1", worker))
    await store.write(lambda tx: tx.note_poller("env_2", "a"))
    now = await store.read(lambda tx: tx.now())

    async def polling(since):
        return await store.read(lambda tx: tx.pollers("env_1", since))

    assert await polling(now - 60 * MICROS) == 2
    assert await polling(now) == 0
    await store.write(lambda tx: tx.forget_pollers(now - 60 * MICROS))
    assert await polling(now - 60 * MICROS) == 2
    await store.write(lambda tx: tx.forget_pollers(now + MICROS))
    assert await polling(now - 60 * MICROS) == 0


async def test_items_go_with_their_session(store):
    await add(store, item())
    await store.write(lambda tx: tx.remove("sesn_1"))
    assert await store.read(lambda tx: tx.work_item("work_1")) is None


# the rule: a session that needs a worker has a live item


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


# polls


async def poll(store, first, token="token", **more):  # noqa: S107  # of an item that is none
    return await store.write(lambda tx: queue.poll(tx, ENV, first, token, **more))


async def test_poll_gives_the_item_that_was_found(store):
    await add(store, item())
    polled = await poll(store, item(), "t", worker_id="w")
    assert (polled.id, polled.worker_id, polled.handed_out) == ("work_1", "w", 1)
    assert (await store.read(lambda tx: tx.work_of_token(queue.digest_of("t")))).id == "work_1"


async def test_poll_that_comes_late_gets_what_is_next_or_nothing(store):
    await add(store, item("work_1", "sesn_1", at=1), item("work_2", "sesn_2", at=2))
    first = item("work_1", "sesn_1", at=1)
    got = [await poll(store, first, f"t{number}") for number in range(3)]
    assert [one and one.id for one in got] == ["work_1", "work_2", None]


async def test_what_was_not_acknowledged_is_given_to_the_next(store):
    await add(store, item())
    await poll(store, item(), "first")
    again = await poll(store, item(), "second", reclaim_micros=0)
    assert (again.id, again.handed_out) == ("work_1", 2)
    assert await store.read(lambda tx: tx.work_of_token(queue.digest_of("first"))) is None


async def test_item_of_another_environment_is_not_there(store):
    await add(store, item())
    for elsewhere in (ELSEWHERE, Queue("another", "env_1")):
        with pytest.raises(DroverError) as refusal:
            await store.read(lambda tx, elsewhere=elsewhere: queue.get(tx, elsewhere, "work_1"))
        assert refusal.value.reason is Reason.NOT_FOUND
    assert (await store.read(lambda tx: queue.get(tx, ENV, "work_1"))).id == "work_1"


async def test_unknown_token_opens_nothing(store):
    with pytest.raises(DroverError) as refusal:
        await store.read(lambda tx: queue.authenticate(tx, queue.digest_of("guessed")))
    assert refusal.value.reason is Reason.UNAUTHENTICATED
