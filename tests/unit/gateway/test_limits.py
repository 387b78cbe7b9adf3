"""Token buckets, the quotas of keys, and how often keys may be guessed."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import structlog

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_WORK_ITEM
from gateway.auth import Caller, UnknownKeyError
from gateway.buckets import Buckets
from gateway.guesses import Guesses
from gateway.quotas import Quotas
from tests.doubles.session_world import ManualClock

KNOWN, WRONG = b"known", b"wrong"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_bucket_gives_what_it_holds_and_what_has_come_since(clock: ManualClock) -> None:
    buckets = Buckets(clock)
    assert [buckets.take("a", 3).remaining for _ in range(3)] == [2, 1, 0]
    empty = buckets.take("a", 3)
    assert (empty.wait, empty.full_in) == pytest.approx((20, 60))
    assert not buckets.take("b", 3).wait
    clock.move(19)
    assert buckets.take("a", 3).wait == pytest.approx(1)
    clock.move(1)
    assert not buckets.take("a", 3).wait
    clock.move(3_600)
    assert [bool(buckets.take("a", 3).wait) for _ in range(4)] == [False, False, False, True]


def test_a_token_that_is_given_back_was_not_taken(clock: ManualClock) -> None:
    buckets = Buckets(clock)
    for _ in range(5):
        assert not buckets.take("a", 1).wait
        buckets.give_back("a", 1)
    buckets.give_back("a", 1)
    assert [bool(buckets.take("a", 1).wait) for _ in range(2)] == [False, True]


def test_no_more_buckets_are_kept_than_there_is_room_for(clock: ManualClock) -> None:
    buckets = Buckets(clock, most=2)
    for name in ("a", "b", "a", "c"):
        buckets.take(name, 2)
    assert buckets.take("a", 2).wait  # used more lately than b, which was forgotten
    assert buckets.take("b", 2).remaining == 1


def test_a_key_without_a_limit_of_its_own_has_the_usual_one(clock: ManualClock) -> None:
    quotas = Quotas(2, clock)
    usual, own = Caller("w", b"usual"), Caller("w", b"own", requests_per_minute=1)
    for caller, limit in ((usual, 2), (own, 1)):
        for left in reversed(range(limit)):
            quota = quotas.take(caller)
            assert quota is not None
            assert quota.headers["anthropic-ratelimit-requests-remaining"] == str(left)
            quota.check()
        spent = quotas.take(caller)
        assert spent is not None
        with pytest.raises(DroverError, match=f"may make {limit} requests a minute") as refused:
            spent.check()
        assert refused.value.reason is Reason.RATE_LIMITED
        assert refused.value.retry_after == pytest.approx(60 / limit)
        reset = datetime.fromisoformat(spent.headers["anthropic-ratelimit-requests-reset"])
        assert timedelta(0) <= clock.now() + timedelta(minutes=1) - reset < timedelta(seconds=1)


def test_workers_and_keys_without_any_limit_are_not_counted(clock: ManualClock) -> None:
    assert Quotas(None, clock).take(Caller("w", b"k")) is None
    assert Quotas(1, clock).take(Caller("w", b"k", KEY_KIND_WORK_ITEM)) is None


async def look(
    guesses: Guesses, peer: str, digest: bytes, outcome: Exception | None = None
) -> bytes:
    async def look_up() -> bytes:
        if outcome is not None:
            raise outcome
        return digest

    return await guesses.find(peer, digest, look_up)


async def guess(guesses: Guesses, peer: str, digest: bytes = WRONG) -> None:
    with pytest.raises(UnknownKeyError):
        await look(guesses, peer, digest, UnknownKeyError("not valid"))


async def refused(guesses: Guesses, peer: str, digest: bytes = WRONG) -> bool:
    try:
        await look(guesses, peer, digest, UnknownKeyError("not valid"))
    except DroverError as error:
        return error.reason is Reason.RATE_LIMITED
    return False


async def test_who_shows_too_many_wrong_keys_waits_and_who_has_one_does_not(
    clock: ManualClock,
) -> None:
    guesses = Guesses(2, clock)
    await look(guesses, "10.0.0.1", KNOWN)
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            await guess(guesses, "10.0.0.1")
        clock.move(30)
        await guess(guesses, "10.0.0.1")
    assert [(line["event"], line["peer"]) for line in lines] == [("keys_are_guessed", "10.0.0.1")]
    assert await refused(guesses, "10.0.0.1")
    await look(guesses, "10.0.0.1", KNOWN)
    with pytest.raises(DroverError) as new:
        await look(guesses, "10.0.0.1", b"new")
    assert new.value.retry_after == pytest.approx(30)
    await guess(guesses, "10.0.0.2")
    clock.move(30)
    await look(guesses, "10.0.0.1", b"new")


async def test_what_was_no_guess_costs_nothing(clock: ManualClock) -> None:
    guesses = Guesses(1, clock)
    for outcome in (
        DroverError(Reason.UNAVAILABLE, "away"),
        DroverError(Reason.UNAUTHENTICATED, "revoked"),
        ConnectionError("odd"),
    ):
        for _ in range(3):
            with pytest.raises(type(outcome)):
                await look(guesses, "10.0.0.1", WRONG, outcome)
    await guess(guesses, "10.0.0.1")
    assert await refused(guesses, "10.0.0.1")


async def test_a_key_that_is_no_more_is_a_guess_from_then_on(clock: ManualClock) -> None:
    guesses = Guesses(1, clock)
    await look(guesses, "10.0.0.1", KNOWN)
    await guess(guesses, "10.0.0.1", KNOWN)
    await guess(guesses, "10.0.0.1", KNOWN)
    assert await refused(guesses, "10.0.0.1", KNOWN)


async def all_at_once(
    guesses: Guesses, digests: list[bytes], outcome: Exception | None = None
) -> tuple[list[bytes | BaseException], int]:
    """What comes of keys that are shown while none has been looked up, and how many are at once."""
    answering, asked = asyncio.Event(), 0

    async def look_up(digest: bytes) -> bytes:
        nonlocal asked
        asked += 1
        await answering.wait()
        if outcome is not None:
            raise outcome
        return digest

    shown = [
        asyncio.ensure_future(guesses.find("10.0.0.1", one, partial(look_up, one)))
        for one in digests
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    at_once = asked
    answering.set()
    async with asyncio.timeout(30):
        return await asyncio.gather(*shown, return_exceptions=True), at_once


async def test_keys_that_are_right_are_let_in_however_many_come_at_once(
    clock: ManualClock,
) -> None:
    for digests in ([KNOWN] * 20, [bytes([number]) for number in range(20)]):
        assert await all_at_once(Guesses(3, clock), digests) == (digests, 3)


async def test_of_wrong_keys_that_come_at_once_no_more_are_looked_up_than_may_be_shown(
    clock: ManualClock,
) -> None:
    guesses = Guesses(3, clock)
    wrong = UnknownKeyError("not valid")
    found, at_once = await all_at_once(guesses, [WRONG] * 20, wrong)
    told = [one.reason for one in found if isinstance(one, DroverError)]
    assert told == [Reason.UNAUTHENTICATED] * 3 + [Reason.RATE_LIMITED] * 17
    assert at_once == 3
    assert not guesses._under_way


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "", True),
    ],
)
async def test_one_host_is_one_source_whatever_address_of_its_it_uses(
    clock: ManualClock, first: str, second: str, alike: Any
) -> None:
    guesses = Guesses(1, clock)
    await guess(guesses, first)
    assert await refused(guesses, second) is alike
