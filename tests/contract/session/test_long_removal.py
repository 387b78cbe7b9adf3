"""A session with a long log goes at once, and its log piece by piece."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from chassis.clock import SystemClock
from services.session.domain.ports import SessionQuery
from services.session.store.copies import SqlCopyStore
from services.session.store.schema import SCHEMA
from services.session.store.sessions import AT_ONCE
from services.session.store.store import SqlSessionStore
from tests.doubles.databases import opened
from tests.doubles.session_rows import REF, create, stamped, state
from tests.doubles.session_world import WORKSPACE

EVENTS = 2 * AT_ONCE + 10


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request, tmp_path):
    cluster = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster) as [database]:
        yield database


@asynccontextmanager
async def store_on(database):
    store = SqlSessionStore(database, SystemClock())
    yield store
    await store.close()


async def long_session(store):
    one = state(head_seq=EVENTS, needs_brain=False, generation=3, lease_expires_at=1)
    await create(store, one)
    await store.write(
        lambda tx: tx.append("sesn_1", [stamped(seq) for seq in range(1, EVENTS + 1)])
    )


async def test_nobody_sees_it_any_more(database):
    async with store_on(database) as store:
        await long_session(store)
        await store.write(lambda tx: tx.remove("sesn_1"))
        assert await store.read(lambda tx: tx.state(REF)) is None
        assert await store.write(lambda tx: tx.state(REF)) is None
        assert await store.read(lambda tx: tx.peek(["sesn_1"])) == {}
        assert await store.read(lambda tx: tx.needs(10)) == []
        everything = SessionQuery(WORKSPACE, 10, include_archived=True)
        assert await store.read(lambda tx: tx.sessions(everything)) == []


async def test_the_rest_is_removed_piece_by_piece_by_whoever_looks_for_it(database):
    async with store_on(database) as store:
        await long_session(store)
        copies = SqlCopyStore(database, SystemClock())
        assert await copies.step(lambda tx: tx.abandoned(tx.now())) == []
        await store.write(lambda tx: tx.remove("sesn_1"))
        assert await copies.step(lambda tx: tx.abandoned(1)) == ["sesn_1"]
        steps = [await copies.step(lambda tx: tx.discard("sesn_1")) for _ in range(3)]
        assert steps == [False, False, True]
        assert await copies.step(lambda tx: tx.abandoned(1)) == []
        await create(store)  # the same name again begins with nothing
        assert await store.read(lambda tx: tx.logged("sesn_1", ["e1", f"e{EVENTS}"])) == set()


async def test_a_short_one_goes_as_a_whole(database):
    async with store_on(database) as store:
        await create(store, state(head_seq=AT_ONCE))
        await store.write(lambda tx: tx.append("sesn_1", [stamped(1)]))
        await store.write(lambda tx: tx.remove("sesn_1"))
        await create(store)
        assert await store.read(lambda tx: tx.logged("sesn_1", ["e1"])) == set()
