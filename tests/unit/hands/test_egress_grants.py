"""Grants in memory: opened once for whoever waits, renewed when used, never another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from services.hands.egress.grants import Grant, Grants
from tests.doubles.hands_waiting import eventually


class Time:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


class Giving:
    """Gives a grant of 300 s at each attempt, once it may."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.asked: list[tuple[str, str, str]] = []
        self.revoked: list[str] = []
        self.failure: Exception | None = None
        self.may = asyncio.Event()
        self.may.set()

    async def open(self, session_id: str, hand_id: str) -> Grant:
        self.asked.append((current_call().workspace_id, session_id, hand_id))
        number = len(self.asked)
        await self.may.wait()
        if self.failure is not None:
            raise self.failure
        now = self.time.seconds
        return Grant(Secret(f"grant {number}"), now + 150, now + 300)

    async def revoke(self, session_id: str) -> None:
        self.revoked.append(session_id)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def giving(time: Time) -> Giving:
    return Giving(time)


@pytest.fixture
async def grants(time: Time, giving: Giving) -> AsyncIterator[Grants]:
    async with asyncio.TaskGroup() as tasks:
        yield Grants(giving, tasks, time)


async def test_those_that_wait_share_one_attempt(grants: Grants, giving: Giving) -> None:
    giving.may.clear()
    waiting = [asyncio.create_task(grants.current("sesn_1", "hand_1")) for _ in range(5)]
    await eventually(lambda: giving.asked)
    giving.may.set()
    assert len({grant.text.open() for grant in await asyncio.gather(*waiting)}) == 1
    assert len(giving.asked) == 1


async def test_one_that_stops_waiting_stops_nobody_else(grants: Grants, giving: Giving) -> None:
    giving.may.clear()
    leaving = asyncio.create_task(grants.current("sesn_1", "hand_1"))
    staying = asyncio.create_task(grants.current("sesn_1", "hand_1"))
    await eventually(lambda: giving.asked)
    leaving.cancel()
    await asyncio.wait([leaving])
    giving.may.set()
    assert (await staying).text.open() == "grant 1"


async def test_grant_in_its_second_half_is_renewed_behind_who_uses_it(
    grants: Grants, giving: Giving, time: Time
) -> None:
    first = await grants.current("sesn_1", "hand_1")
    time.seconds += 149
    assert await grants.current("sesn_1", "hand_1") is first
    assert len(giving.asked) == 1
    time.seconds += 2
    assert await grants.current("sesn_1", "hand_1") is first
    await eventually(lambda: len(giving.asked) == 2)
    await asyncio.sleep(0)
    assert (await grants.current("sesn_1", "hand_1")).text.open() == "grant 2"


async def test_who_wants_the_newest_waits_for_it_and_does_without_where_it_is_not_to_be_had(
    grants: Grants, giving: Giving, time: Time
) -> None:
    first = await grants.current("sesn_1", "hand_1", renewed=True)
    assert await grants.current("sesn_1", "hand_1", renewed=True) is first
    time.seconds += 151
    second = await grants.current("sesn_1", "hand_1", renewed=True)
    assert second.text.open() == "grant 2"
    time.seconds += 151
    giving.failure = DroverError(Reason.UNAVAILABLE, "away")
    assert await grants.current("sesn_1", "hand_1", renewed=True) is second
    time.seconds += 1
    giving.failure = DroverError(Reason.ARCHIVED, "archived")
    with pytest.raises(DroverError, match="archived"):
        await grants.current("sesn_1", "hand_1", renewed=True)


async def test_grant_that_has_ended_is_used_no_more(
    grants: Grants, giving: Giving, time: Time
) -> None:
    await grants.current("sesn_1", "hand_1")
    time.seconds += 301
    giving.failure = DroverError(Reason.UNAVAILABLE, "away")
    with pytest.raises(DroverError, match="away"):
        await grants.current("sesn_1", "hand_1")


async def test_grant_outlives_a_vault_proxy_that_is_away_but_not_its_word(
    grants: Grants, giving: Giving, time: Time
) -> None:
    first = await grants.current("sesn_1", "hand_1")
    time.seconds += 151
    giving.failure = DroverError(Reason.UNAVAILABLE, "away")
    assert await grants.current("sesn_1", "hand_1") is first
    await eventually(lambda: len(giving.asked) == 2)
    time.seconds += 1
    giving.failure = DroverError(Reason.ARCHIVED, "archived")
    assert await grants.current("sesn_1", "hand_1") is first
    await eventually(lambda: len(giving.asked) == 3)
    await asyncio.sleep(0)
    with pytest.raises(DroverError, match="archived"):
        await grants.current("sesn_1", "hand_1")


async def test_failure_stands_for_a_moment_and_the_next_use_tries_again(
    grants: Grants, giving: Giving, time: Time
) -> None:
    giving.failure = DroverError(Reason.UNAVAILABLE, "away")
    for _ in range(10):
        with pytest.raises(DroverError, match="away"):
            await grants.current("sesn_1", "hand_1")
    assert len(giving.asked) == 1
    giving.failure = None
    time.seconds += 1
    assert (await grants.current("sesn_1", "hand_1")).text.open() == "grant 2"


async def test_whatever_goes_wrong_ends_no_other_task(grants: Grants, giving: Giving) -> None:
    giving.failure = RuntimeError("no such thing")
    with pytest.raises(DroverError) as told:
        await grants.current("sesn_1", "hand_1")
    assert told.value.reason is Reason.INTERNAL


async def test_hand_that_serves_another_session_keeps_nobody_waiting(
    grants: Grants, giving: Giving
) -> None:
    giving.may.clear()
    waiting = asyncio.create_task(grants.current("sesn_1", "hand_1"))
    await eventually(lambda: giving.asked)
    grants.drop("sesn_1", "hand_1")
    with pytest.raises(DroverError, match="another session"):
        await waiting
    giving.may.set()
    assert (await grants.current("sesn_2", "hand_1")).text.open() == "grant 2"


async def test_grants_are_asked_for_in_the_workspace_that_the_first_use_was_in(
    grants: Grants, giving: Giving, time: Time
) -> None:
    with call_context(CallContext("wrkspc_other")):
        await grants.current("sesn_1", "hand_1")
    time.seconds += 301
    await grants.current("sesn_1", "hand_1")
    assert [asked[0] for asked in giving.asked] == ["wrkspc_other"] * 2


async def test_revoking_reaches_grants_that_nobody_holds_any_more(
    grants: Grants, giving: Giving, time: Time
) -> None:
    await grants.current("sesn_1", "hand_1")
    await grants.current("sesn_2", "hand_2")
    grants.drop("sesn_1", "hand_1")
    await grants.revoke("sesn_1")
    await grants.revoke("sesn_1")
    time.seconds += 301
    await grants.revoke("sesn_2")  # has ended by itself
    await grants.revoke("sesn_3")  # was never given any
    assert giving.revoked == ["sesn_1"]


async def test_vault_proxy_that_is_away_keeps_no_session_from_ending(
    grants: Grants, giving: Giving
) -> None:
    await grants.current("sesn_1", "hand_1")
    giving.failure = DroverError(Reason.UNAVAILABLE, "away")
    await grants.revoke("sesn_1")
    assert giving.revoked == ["sesn_1"]
