"""What is durable is told, in order, whatever becomes of the caller."""

from __future__ import annotations

import asyncio

import pytest

from services.session.commits import Commits
from services.session.domain.news import News
from services.session.domain.session import SessionRef


def news(number):
    return News(SessionRef("wrkspc_default", f"sesn_{number}"))


class Store:
    """A store whose commits wait until the test lets them through."""

    def __init__(self):
        self.gate = asyncio.Event()

    def submit(self, fn, *, about):
        async def write():
            await self.gate.wait()
            return fn(None)

        return asyncio.ensure_future(write())


class Listener:
    def __init__(self):
        self.heard = []

    def hear(self, one):
        self.heard.append(one.ref.session_id)


async def test_a_cancelled_callers_transaction_is_told_all_the_same():
    store, listener = Store(), Listener()
    async with Commits(store, [listener]) as commits:
        caller = asyncio.create_task(commits.write(lambda _tx: (None, news(1))))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        store.gate.set()
    assert listener.heard == ["sesn_1"]


async def test_news_is_told_in_the_order_of_the_commits():
    store, listener = Store(), Listener()
    async with Commits(store, [listener]) as commits, asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(commits.write(lambda _tx, number=number: (None, news(number))))
        store.gate.set()
    assert listener.heard == [f"sesn_{number}" for number in range(20)]


async def test_a_caller_goes_on_behind_the_listeners_and_before_the_readers_work():
    store, order = Store(), []
    store.gate.set()

    class Waking:
        def __init__(self, name):
            self.name = name

        def hear(self, _one):
            asyncio.get_running_loop().call_soon(order.append, self.name)

    async def write(commits):
        await commits.write(lambda _tx: (None, news(1)))
        order.append("caller")

    async with Commits(store, [Waking("listener")], [Waking("reader")]) as commits:
        await write(commits)
        await asyncio.sleep(0)
    assert order == ["listener", "caller", "reader"]


async def test_a_failed_transaction_is_told_to_its_caller_only():
    store, listener = Store(), Listener()
    store.gate.set()

    def fail(_tx):
        msg = "no"
        raise LookupError(msg)

    async with Commits(store, [listener]) as commits:
        with pytest.raises(LookupError):
            await commits.write(fail)
        assert await commits.write(lambda _tx: ("fine", None)) == "fine"
    assert listener.heard == []


async def test_a_listener_that_fails_takes_nothing_back():
    class Deaf:
        def hear(self, _one):
            msg = "what?"
            raise LookupError(msg)

    store, listener = Store(), Listener()
    store.gate.set()
    async with Commits(store, [Deaf(), listener]) as commits:
        assert await commits.write(lambda _tx: ("kept", news(1))) == "kept"
    assert listener.heard == ["sesn_1"]


async def test_what_belongs_to_the_commit_happens_before_later_news():
    store, order = Store(), []

    class Noting:
        def hear(self, one):
            order.append(one.ref.session_id)

    async with Commits(store, [Noting()]) as commits, asyncio.TaskGroup() as tasks:
        tasks.create_task(commits.write(lambda _tx: (1, news(1)), then=order.append))
        tasks.create_task(commits.write(lambda _tx: (2, news(2))))
        store.gate.set()
    assert order == [1, "sesn_1", "sesn_2"]
