"""Waking brains from two replicas on one PostgreSQL, their leases held at either."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session import dispatch
from tests.doubles.session_events import idle, message, running, said
from tests.doubles.session_replicas import running_replicas
from tests.doubles.session_stack import DEADLINE, Lease, echo_turns, refusal, until
from tests.doubles.session_world import kinds


@pytest.fixture
def database(postgres):
    return postgres.new_database()


def sweep_every(monkeypatch, seconds):
    monkeypatch.setitem(dispatch.Dispatcher.__init__.__kwdefaults__, "sweep_seconds", seconds)


@pytest.fixture
def alone(monkeypatch):
    """Neither replica sees to what the other is about to, however long that is about it."""
    monkeypatch.setattr("services.session.main._GRACE_SECONDS", 60.0)


@pytest.fixture
def often(monkeypatch):
    """Sweeps fifty times a second."""
    sweep_every(monkeypatch, 0.02)


@pytest.fixture
def never(monkeypatch):
    """Sweeps as it begins, and not again."""
    sweep_every(monkeypatch, 3600)


def woken(replicas):
    return sum(len(brain.woken) for brain in replicas.brains)


async def at_rest(service, session_id, turns):
    """Waits until so many turns have ended; answers the log."""
    async with asyncio.timeout(DEADLINE):
        while True:  # nothing announces it
            log = list((await service.events(session_id, limit=1000)).data)
            if kinds(log).count("session_status_idle") >= turns:
                return log
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seconds", [0.02, 3600])
async def test_each_message_is_answered_once_wherever_it_is_sent_and_the_lease_held(
    tmp_path, database, monkeypatch, seconds
):
    sweep_every(monkeypatch, seconds)
    async with running_replicas(tmp_path, database, works=[echo_turns] * 2) as replicas:
        session = await replicas.one.create()
        for turn in range(1, 21):
            service = (replicas.one, replicas.other)[turn % 2]
            await service.emit(session.id, message(f"turn {turn}"))
            log = await at_rest(service, session.id, turn)
        texts = [
            event.agent_message.content[0].text.text
            for event in log
            if event.HasField("agent_message")
        ]
        assert texts == [f"turn {turn}" for turn in range(1, 21)]
        assert woken(replicas) == 20


@pytest.mark.usefixtures("often", "alone")
async def test_sweeps_leave_alone_what_another_replica_is_about_to_see_to(tmp_path, database):
    async with running_replicas(tmp_path, database, works=[echo_turns] * 2) as replicas:
        sessions = [await replicas.one.create() for _ in range(30)]
        for number, session in enumerate(sessions):
            await (replicas.one, replicas.other)[number % 2].emit(session.id, message())
        for session in sessions:
            await at_rest(replicas.both, session.id, 1)
        assert sorted(one for brain in replicas.brains for one in brain.woken) == sorted(
            session.id for session in sessions
        )


@pytest.mark.usefixtures("alone")
async def test_a_lease_that_is_opened_at_the_other_replica_is_waited_for(
    tmp_path, database, monkeypatch
):
    dispatchers = []

    def make(*arguments, **more):
        dispatchers.append(dispatch.Dispatcher(*arguments, **more))
        return dispatchers[-1]

    monkeypatch.setattr("services.session.main.Dispatcher", make)
    done = asyncio.Event()

    async def work(_stub, session_id):
        lease = await Lease(replicas.other.stub, session_id).open()
        await lease.append(running(), take=lease_pb2.TAKE_INPUT_ALL)
        await done.wait()
        await lease.append(idle(), release=True)

    async with running_replicas(tmp_path, database, works=[work] * 2) as replicas:
        session = await replicas.one.create()
        await replicas.one.emit(session.id, message())
        await until(lambda: woken(replicas) == 1)
        [visit] = [one for dispatcher in dispatchers for one in dispatcher._visits.values()]
        await until(lambda: visit.opened)  # as it has heard of the other
        assert visit.limit.when() is None  # it is waited for as long as it works
        done.set()
        await at_rest(replicas.one, session.id, 1)
        assert woken(replicas) == 1


@pytest.mark.usefixtures("never")
async def test_a_brain_that_dies_is_followed_at_once_and_its_lease_lost_at_the_other_replica(
    tmp_path, database
):
    left = []

    async def die(_stub, session_id):
        if not left:
            left.append(await Lease(replicas.other.stub, session_id).open())
            await left[0].append(running(), said("half"), take=lease_pb2.TAKE_INPUT_ALL)
            raise DroverError(Reason.UNAVAILABLE, "killed")
        lease = await Lease(replicas.other.stub, session_id).open()
        await lease.append(said("the rest"), idle(), release=True)

    async with running_replicas(tmp_path, database, works=[die]) as replicas:
        session = await replicas.one.create()
        await replicas.one.emit(session.id, message())
        log = await at_rest(replicas.one, session.id, 1)
        assert (await refusal(left[0].acknowledged())).reason is Reason.LEASE_LOST
        assert kinds(log).count("agent_message") == 2


@pytest.mark.usefixtures("often")
async def test_a_wake_that_died_with_its_replica_is_found_by_the_other(tmp_path, database):
    async with running_replicas(tmp_path, database, works=[echo_turns]) as replicas:
        session = await replicas.one.create()
        brain = replicas.brains[0]
        working, brain.work = brain.work, None  # it is woken, and does nothing
        await replicas.one.emit(session.id, message())
        await until(lambda: brain.woken)
        await replicas.stop(replicas.one)
        brain.work, brain.stub = working, replicas.other.stub
        await at_rest(replicas.other, session.id, 1)


@pytest.mark.usefixtures("alone")
async def test_a_brain_at_work_goes_on_at_the_other_replica_when_its_own_dies(tmp_path, database):
    opened, reopened, works = asyncio.Event(), asyncio.Event(), []

    async def go_on(session_id):
        lease = await Lease(replicas.one.stub, session_id).open()
        await lease.append(running(), said("one"), take=lease_pb2.TAKE_INPUT_ALL)
        opened.set()
        assert (await refusal(lease.acknowledged())).reason in {
            Reason.UNAVAILABLE,
            Reason.CANCELLED,
        }
        again = Lease(replicas.other.stub, session_id, generation=lease.generation, after_seq=3)
        await again.open()
        reopened.set()
        await again.append(said("two"), idle(), release=True)

    async def work(_stub, session_id):  # whatever becomes of the call that woke it
        works.append(asyncio.create_task(go_on(session_id)))
        await asyncio.shield(works[-1])

    async with running_replicas(tmp_path, database, works=[work]) as replicas:
        session = await replicas.one.create()
        await replicas.one.emit(session.id, message())
        async with asyncio.timeout(DEADLINE):
            await opened.wait()
            await replicas.stop(replicas.one)
            await reopened.wait()
            await works[0]
        log = await at_rest(replicas.other, session.id, 1)
        assert kinds(log).count("agent_message") == 2
        assert woken(replicas) == 1


@pytest.mark.usefixtures("often", "alone")
async def test_an_expired_lease_is_passed_on_by_one_replica_alone(tmp_path, postgres, database):
    async with running_replicas(tmp_path, database, works=[echo_turns] * 2) as replicas:
        session = await replicas.one.create()
        abandoned = await replicas.one.lease(session.id).open()
        await abandoned.append(running())
        await abandoned.close()
        expire = "UPDATE drover_session.sessions SET lease_expires_at = 1"
        postgres.execute(expire, database=database.rpartition("/")[2])
        log = await at_rest(replicas.both, session.id, 1)
        assert kinds(log)[-1] == "session_status_idle"
        assert woken(replicas) == 1
