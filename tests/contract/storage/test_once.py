"""A write has its effect once for its request, on either engine and over several processes."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, insert, select, text

from catalogue.resources.once import Once
from chassis.context import CallContext, call_context
from chassis.errors import DroverError, Reason
from drover.api.v1.request_key_pb2 import RequestKey
from services.registry.store.schema import SCHEMA
from services.registry.store.tables import AGENTS
from storage import answers
from storage.once import Answers, asked
from tests.doubles.databases import opened

DAY = 24 * 3600
LATE = 120


@dataclass
class ManualClock:
    at: datetime = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def now(self):
        return self.at

    def monotonic(self):
        return self.at.timestamp()

    def move(self, seconds):
        self.at += timedelta(seconds=seconds)


class World:
    """Two processes over one database (SQLite has but one), whose effect is a row each."""

    def __init__(self, databases):
        self.clock = ManualClock()
        self.databases = databases
        self.writers = [Answers(database, self.clock) for database in databases]
        self._numbers = itertools.count(1)

    def key(self, name=b"k", *, fingerprint=b"", attempt=0, ago=0.0):
        key = RequestKey(id=name.ljust(16, b"."), fingerprint=fingerprint, attempt=attempt)
        key.received_at.FromDatetime(self.clock.now() - timedelta(seconds=ago))
        return key

    async def send(self, key, *, writer=0, about="", fails=False):
        """The number of the effect that the request is answered with, and whether it is new."""
        once = Once(key, pack=lambda number: str(number).encode(), unpack=int)
        number = next(self._numbers)

        def effect(connection):
            row = {"id": f"agent_{number}", "workspace_id": "w", "version": 1, "created_at": 1}
            connection.execute(insert(AGENTS), row)
            if fails:
                raise DroverError(Reason.INVALID_ARGUMENT, "no")
            return number

        answered = await self.writers[writer].write(effect, once, about)
        return answered, not once.replayed

    async def effects(self):
        return await self.databases[0].read(
            lambda connection: connection.scalar(select(func.count()).select_from(AGENTS))
        )

    async def forget(self, most=answers.BATCH):
        now = int(self.clock.now().timestamp() * 1_000_000)
        return await self.databases[0].write(lambda one: answers.forget(one, now, most))


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request, tmp_path):
    if request.param == "sqlite":
        async with opened(SCHEMA, tmp_path, None) as [database]:
            yield World([database, database])
        return
    async with opened(SCHEMA, tmp_path, request.getfixturevalue("postgres"), 2) as databases:
        yield World(databases)


def named(world, body=b"body"):
    return world.key(fingerprint=body.ljust(16, b"."))


async def test_a_named_request_has_its_effect_once_and_its_answer_each_time(world):
    first, new = await world.send(named(world))
    assert new
    assert await world.send(named(world), writer=1) == (first, False)
    assert await world.effects() == 1


async def test_a_name_of_another_request_is_a_conflict_without_effect(world):
    await world.send(named(world))
    with pytest.raises(DroverError) as refused:
        await world.send(named(world, b"another"))
    assert refused.value.reason is Reason.CONFLICT
    assert not refused.value.rule.retryable
    assert await world.effects() == 1


async def test_a_refusal_is_not_kept(world):
    with pytest.raises(DroverError, match="no"):
        await world.send(named(world), fails=True)
    assert (await world.send(named(world)))[1]
    assert await world.effects() == 1


async def test_a_name_is_kept_for_a_day(world):
    first, _ = await world.send(named(world))
    world.clock.move(DAY - 1)
    assert await world.send(named(world)) == (first, False)
    world.clock.move(1)
    again, new = await world.send(named(world, b"another"))
    assert new
    assert again != first


async def test_a_repetition_gets_the_answer_of_the_first_attempt(world):
    first, _ = await world.send(world.key())
    for attempt in (1, 2):
        assert await world.send(world.key(attempt=attempt), writer=1) == (first, False)
    assert await world.effects() == 1


async def test_first_attempts_are_each_a_request_of_their_own(world):
    answered = [await world.send(world.key()) for _ in range(3)]
    assert [new for _, new in answered] == [True] * 3
    assert await world.send(world.key(attempt=1)) == (answered[-1][0], False)
    assert await world.effects() == 3


async def test_a_repetition_whose_first_attempt_never_came_has_the_effect(world):
    first, new = await world.send(world.key(attempt=1))
    assert new
    assert await world.send(world.key(attempt=2)) == (first, False)


async def test_a_repetition_after_two_minutes_is_a_new_request(world):
    await world.send(world.key())
    world.clock.move(LATE)
    assert (await world.send(world.key(attempt=1)))[1]


async def test_a_first_attempt_that_its_repetition_overtook_gets_the_repetitions_answer(world):
    late = world.key()
    world.clock.move(0.5)
    first, new = await world.send(world.key(attempt=1))
    assert new
    world.clock.move(3)
    assert await world.send(late, writer=1) == (first, False)
    assert await world.effects() == 1


async def test_a_repetition_stands_for_one_overtaken_attempt_only(world):
    late, later = world.key(), world.key()
    world.clock.move(0.5)
    await world.send(world.key(attempt=1))
    assert not (await world.send(late))[1]
    assert (await world.send(later))[1]


async def test_the_same_request_behind_a_repetition_is_a_new_one(world):
    await world.send(world.key(attempt=1))
    assert (await world.send(world.key()))[1]
    # Nor do clocks that differ by a tenth of a second make it an overtaken one.
    world.clock.move(1)
    await world.send(world.key(attempt=1, name=b"other"))
    assert (await world.send(world.key(name=b"other", ago=0.1)))[1]


@pytest.mark.parametrize("kind", ["named", "counted"])
async def test_of_requests_that_come_at_once_one_has_the_effect(world, kind):
    keys = [
        named(world) if kind == "named" else world.key(attempt=attempt) for attempt in range(1, 9)
    ]
    answered = await asyncio.gather(
        *(world.send(key, writer=number % 2) for number, key in enumerate(keys))
    )
    assert len({number for number, _ in answered}) == 1
    assert sum(new for _, new in answered) == 1
    assert await world.effects() == 1


async def test_an_attempt_and_its_repetition_at_once_have_one_effect(world):
    for number in range(10):
        name = f"r{number}".encode()
        original = world.key(name=name)
        world.clock.move(0.5)
        answered = await asyncio.gather(
            world.send(original, writer=0), world.send(world.key(name=name, attempt=1), writer=1)
        )
        assert sorted(new for _, new in answered) == [False, True]
    assert await world.effects() == 10


async def test_what_was_deleted_is_not_answered_with(world):
    await world.send(named(world), about="env_1")
    await world.databases[0].write(lambda connection: answers.withdraw(connection, "env_1"))
    with pytest.raises(DroverError, match="was deleted since") as refused:
        await world.send(named(world))
    assert refused.value.reason is Reason.NOT_FOUND
    left = await world.databases[0].read(
        lambda connection: connection.scalar(text("SELECT count(answer) FROM answers"))
    )
    assert left == 0


async def test_expired_answers_are_removed_in_batches(world):
    for number in range(5):
        await world.send(world.key(name=f"r{number}".encode()))
    await world.send(named(world))
    assert await world.forget() == 0
    world.clock.move(LATE)
    assert [await world.forget(3), await world.forget(3)] == [3, 2]
    assert not (await world.send(named(world)))[1]


async def test_the_sweep_removes_what_is_expired(world):
    await world.send(world.key())
    world.clock.move(LATE)
    sweep = asyncio.create_task(world.writers[0].sweep())

    def left(connection):
        return connection.scalar(text("SELECT count(*) FROM answers"))

    async with asyncio.timeout(30):
        while await world.databases[0].read(left):
            pass
    sweep.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweep


def test_a_call_without_a_key_has_none():
    assert asked() is None


@pytest.mark.parametrize("raw", [b"\xff\xff", RequestKey(attempt=1).SerializeToString()])
def test_a_call_whose_key_is_none_is_refused(raw):
    with call_context(CallContext(idempotency=raw)), pytest.raises(DroverError) as refused:
        asked()
    assert refused.value.reason is Reason.INVALID_ARGUMENT
