"""What is begun is made whole or removed, whatever becomes of who asked for it."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from services.session.copying import Copying
from services.session.domain.copies import ABANDONED_MICROS
from tests.doubles.session_copies import NOBODYS, MemoryCopyStore
from tests.doubles.session_rows import state
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import ManualClock, details


class SlowStore(MemoryCopyStore):
    """Steps that commit when they may, whether or not anybody still waits for them."""

    def __init__(self, store):
        super().__init__(store)
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.failing = False

    async def step(self, fn):
        return await asyncio.shield(asyncio.ensure_future(self._step(fn)))

    async def _step(self, fn):
        await self.may_commit.wait()
        if self.failing:
            raise DroverError(Reason.UNAVAILABLE, "the database does not answer")
        return await super().step(fn)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sessions(clock):
    return MemoryStore(clock)


@pytest.fixture
def steps(sessions):
    return SlowStore(sessions)


def begin(tx):
    tx.begin(state(), details(), [])
    return "begun"


def unfinished(sessions):
    return [one for one, kept in sessions._tables.sessions.items() if is_unfinished(kept)]


def is_unfinished(kept):
    return kept.state.workspace_id == NOBODYS


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_what_is_published_stays(sessions, steps):
    async with Copying(steps) as copying, copying.making("sesn_1", begin) as begun:
        assert begun == "begun"
        await copying.step(lambda tx: tx.publish(state()))
    assert list(sessions._tables.sessions) == ["sesn_1"]
    assert unfinished(sessions) == []


async def test_what_fails_is_gone_before_its_caller_is_told(sessions, steps):
    async with Copying(steps) as copying:
        with pytest.raises(LookupError):
            async with copying.making("sesn_1", begin):
                raise LookupError
        assert not sessions._tables.sessions


async def test_who_goes_away_leaves_nothing(sessions, steps):
    async with Copying(steps) as copying:

        async def work():
            async with copying.making("sesn_1", begin):
                await asyncio.Event().wait()

        working = asyncio.ensure_future(work())
        await until(lambda: unfinished(sessions))
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert not sessions._tables.sessions


async def test_who_goes_away_before_the_first_step_is_committed_leaves_nothing(sessions, steps):
    async with Copying(steps) as copying:
        await until(lambda: not copying._sweeping)
        steps.may_commit.clear()
        working = asyncio.ensure_future(copying.making("sesn_1", begin).__aenter__())
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        steps.may_commit.set()
    assert not sessions._tables.sessions


async def test_nobody_removes_what_another_has_begun(sessions, steps):
    async with Copying(steps) as copying, copying.making("sesn_1", begin):
        with pytest.raises(DroverError, match="just being made"):
            await copying.making("sesn_1", begin).__aenter__()
        assert unfinished(sessions) == ["sesn_1"]
        await copying.step(lambda tx: tx.publish(state()))
    assert unfinished(sessions) == []


async def test_what_a_dead_process_left_is_removed_once_it_is_old(sessions, steps, clock):
    await steps.step(begin)
    async with Copying(steps):
        pass
    assert unfinished(sessions) == ["sesn_1"]
    clock.move(ABANDONED_MICROS / 1_000_000 + 1)
    async with Copying(steps):
        pass
    assert not sessions._tables.sessions


async def test_what_cannot_be_removed_now_is_left_for_later(sessions, steps, clock):
    async with Copying(steps) as copying:

        async def work():
            async with copying.making("sesn_1", begin):
                steps.failing = True
                raise LookupError

        with pytest.raises(LookupError):
            await work()
    assert unfinished(sessions) == ["sesn_1"]
    steps.failing = False
    clock.move(ABANDONED_MICROS / 1_000_000 + 1)
    async with Copying(steps):
        pass
    assert not sessions._tables.sessions
