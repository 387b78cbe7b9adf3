"""What every store of sessions keeps to for requests that are repeated."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.ports import UNKNOWN, About
from tests.doubles.request_keys import counted, named
from tests.doubles.session_rows import REF, bump, create, positions


def once(key, ref=REF, effect=None):
    """A write that has its effect once; answers what it did and whether that was now."""
    effect = effect or bump(ref)

    def fn(tx):
        kept = tx.answer(key)
        if kept is not None:
            return int(kept), False
        done = effect(tx)
        tx.keep_answer(key, str(done).encode(), ref.session_id)
        return done, True

    return fn


def announced(key, ref=REF):
    return About(ref, key=key)


@pytest.mark.parametrize("about", [announced, lambda _: UNKNOWN], ids=["announced", "not"])
@pytest.mark.parametrize("again", [named("k"), counted("k", 1)], ids=["named", "counted"])
async def test_a_request_has_its_effect_once(store, again, about):
    await create(store)
    first = named("k") if again.fingerprint else counted("k", 0)
    assert await store.write(once(first), about=about(first)) == (1, True)
    assert await store.write(once(again), about=about(again)) == (1, False)
    assert await positions(store) == [1]


async def test_a_key_of_another_request_is_a_conflict(store):
    await create(store)
    await store.write(once(named("k")), about=announced(named("k")))
    with pytest.raises(DroverError) as refused:
        await store.write(once(named("k", "another")), about=announced(named("k", "another")))
    assert refused.value.reason is Reason.CONFLICT
    assert await positions(store) == [1]


async def test_of_an_effect_that_fails_no_answer_is_kept(store):
    await create(store)

    def failing(tx):
        bump()(tx)
        tx.keep_answer(named("k"), b"1", REF.session_id)
        raise DroverError(Reason.INVALID_ARGUMENT, "no")

    with pytest.raises(DroverError, match="no"):
        await store.write(failing, about=announced(named("k")))
    assert await store.write(once(named("k"))) == (1, True)


@pytest.mark.parametrize("about", [announced, lambda _: UNKNOWN], ids=["announced", "not"])
async def test_requests_that_come_at_once_have_their_effect_once_each(store, about):
    await create(store)
    keys = [named(f"k{number % 3}") for number in range(12)]
    done = await asyncio.gather(*(store.write(once(key), about=about(key)) for key in keys))
    assert sum(new for _, new in done) == 3
    assert [one for one, _ in done[:3]] * 4 == [one for one, _ in done]
    assert await positions(store) == [1, 2, 3]


async def test_first_attempts_are_requests_of_their_own_however_alike(store):
    await create(store)
    key = counted("k", 0)
    write = [store.write(once(key), about=announced(key)) for _ in range(3)]
    assert sorted(await asyncio.gather(*write)) == [(1, True), (2, True), (3, True)]


async def test_a_first_attempt_is_known_by_the_repetition_that_overtook_it(store):
    await create(store)
    original = counted("k", 0)
    now = await store.read(lambda tx: tx.now())
    original.received_at.FromMicroseconds(now - 5_000_000)
    again = counted("k", 1)
    assert await store.write(once(again), about=announced(again)) == (1, True)
    assert await store.write(once(original), about=announced(original)) == (1, False)


async def test_an_answer_is_read_without_writing(store):
    await create(store)
    assert await store.read(lambda tx: tx.answer(named("k"))) is None
    await store.write(once(named("k")), about=announced(named("k")))
    assert await store.read(lambda tx: tx.answer(named("k"))) == b"1"


async def test_answers_go_with_their_session(store):
    await create(store)
    await store.write(once(named("k")), about=announced(named("k")))

    def remove(tx):
        tx.keep_answer(named("unsaved"), b"2", REF.session_id)
        tx.remove(REF.session_id)
        tx.keep_answer(named("removal"), b"gone", "")

    await store.write(remove, about=About(REF))
    for key in (named("k"), named("unsaved")):
        with pytest.raises(DroverError, match="was deleted since") as refused:
            await store.read(lambda tx, key=key: tx.answer(key))
        assert refused.value.reason is Reason.NOT_FOUND
    assert await store.read(lambda tx: tx.answer(named("removal"))) == b"gone"


async def test_answers_whose_time_is_not_over_are_not_forgotten(store):
    await create(store)
    await store.write(once(named("k")), about=announced(named("k")))
    assert await store.write(lambda tx: tx.forget_answers(10)) == 0


# PostgreSQL's clock cannot be moved: tests/contract/storage shows the same there by another way.
@pytest.mark.parametrize("store", ["sqlite", "memory"], indirect=True)
async def test_answers_are_forgotten_a_few_at_a_time(clock, store):
    await create(store)
    for number in range(3):
        key = counted(f"k{number}", 0)
        await store.write(once(key), about=announced(key))
    clock.move(120)
    assert [await store.write(lambda tx: tx.forget_answers(2)) for _ in range(2)] == [2, 1]


@pytest.mark.parametrize("about", [announced, lambda _: UNKNOWN], ids=["announced", "not"])
@pytest.mark.parametrize("kind", ["named", "counted"])
async def test_replicas_that_get_a_request_at_once_have_its_effect_once(replicas, kind, about):
    await create(replicas[0])
    for number in range(15):
        keys = (
            [named(f"k{number}")] * 4
            if kind == "named"
            else [counted(f"k{number}", attempt) for attempt in (1, 2, 1, 2)]
        )
        done = await asyncio.gather(
            *(
                replicas[place % 2].write(once(key), about=about(key))
                for place, key in enumerate(keys)
            )
        )
        assert {one for one, _ in done} == {number + 1}
        assert sum(new for _, new in done) == 1


async def test_replicas_that_get_a_creation_at_once_create_once(replicas):
    for number in range(15):
        key = named(f"k{number}")

        def fn(tx, key=key, number=number):
            if (kept := tx.answer(key)) is not None:
                return kept, False
            name = f"sesn_{number}_{id(tx)}"
            tx.keep_answer(key, name.encode(), name)
            return name.encode(), True

        done = await asyncio.gather(
            *(replicas[place % 2].write(fn, about=About(key=key)) for place in range(4))
        )
        assert len({name for name, _ in done}) == 1
        assert sum(new for _, new in done) == 1
