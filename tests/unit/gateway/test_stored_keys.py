"""How long the gateway knows a key, and what it does when nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_API
from drover.key.v1.api_key_pb2 import ApiKey
from drover.key.v1.api_key_service_pb2 import AuthenticateApiKeyResponse
from gateway import stored_keys
from gateway.auth import Token, UnknownKeyError
from gateway.stored_keys import PATIENCE, StoredKeys
from tests.doubles.session_world import ManualClock

TOKEN = Token(KEY_KIND_API, b"digest")
AWAY = DroverError(Reason.UNAVAILABLE, "the registry service is away")
SECONDS = 5.0


class Registry:
    """Answers with `key`, or raises `failure`, once it is `answering`."""

    def __init__(self) -> None:
        self.key: ApiKey | None = ApiKey(
            id="apikey_1", workspace_id="wrkspc_1", scopes=["read"], requests_per_minute=7
        )
        self.failure: Exception | None = None
        self.answering = asyncio.Event()
        self.answering.set()
        self.begun = asyncio.Event()
        self.asked = 0

    async def __call__(self, _request: Any, _key: object = None) -> tuple[Any, bool]:
        self.asked += 1
        self.begun.set()
        await self.answering.wait()
        if self.failure is not None:
            raise self.failure
        if self.key is None:
            raise DroverError(Reason.UNAUTHENTICATED, "there is no such API key")
        return AuthenticateApiKeyResponse(api_key=self.key), False


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def keys(registry: Registry, clock: ManualClock) -> AsyncIterator[StoredKeys]:
    async with asyncio.TaskGroup() as group:
        yield StoredKeys(registry, group, SECONDS, clock)
        registry.answering.set()


async def test_a_key_is_asked_about_once_in_a_while(
    keys: StoredKeys, registry: Registry, clock: ManualClock
) -> None:
    for _ in range(3):
        caller = await keys.caller(TOKEN)
    assert (caller.workspace_id, caller.key_id, caller.scopes) == ("wrkspc_1", "apikey_1", {"read"})
    assert (caller.requests_per_minute, caller.may_end, caller.token) == (7, True, TOKEN)
    assert registry.asked == 1
    clock.move(SECONDS)
    await keys.caller(TOKEN)
    assert registry.asked == 2


async def test_several_that_ask_at_once_share_one_look_up(
    keys: StoredKeys, registry: Registry
) -> None:
    registry.answering.clear()
    first, second = (asyncio.create_task(keys.caller(TOKEN)) for _ in range(2))
    await registry.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    registry.answering.set()
    assert (await second).key_id == "apikey_1"
    assert registry.asked == 1


async def test_an_answer_is_as_old_as_its_question_however_late_it_comes(
    keys: StoredKeys, registry: Registry, clock: ManualClock
) -> None:
    registry.answering.clear()
    asking = asyncio.create_task(keys.caller(TOKEN))
    await registry.begun.wait()
    clock.move(SECONDS)
    registry.answering.set()
    await asking
    await keys.caller(TOKEN)
    assert registry.asked == 2


async def test_a_revoked_key_and_one_that_was_never_made_are_told_apart(
    keys: StoredKeys, registry: Registry, clock: ManualClock
) -> None:
    assert registry.key is not None
    await keys.caller(TOKEN)
    registry.key.revoked_at.GetCurrentTime()
    await keys.caller(TOKEN)
    clock.move(SECONDS)
    for _ in range(2):
        with pytest.raises(DroverError, match="apikey_1 was revoked") as refused:
            await keys.caller(TOKEN)
        assert refused.value.reason is Reason.UNAUTHENTICATED
        assert not isinstance(refused.value, UnknownKeyError)
    assert registry.asked == 2
    registry.key = None
    clock.move(SECONDS)
    for asked in (3, 4):
        with pytest.raises(UnknownKeyError):
            await keys.caller(TOKEN)
        assert registry.asked == asked


async def test_a_key_expires_to_the_moment_and_without_being_asked_about(
    keys: StoredKeys, registry: Registry, clock: ManualClock
) -> None:
    assert registry.key is not None
    registry.key.expires_at.FromDatetime(clock.now() + timedelta(seconds=2))
    assert (await keys.caller(TOKEN)).expires_at == clock.now() + timedelta(seconds=2)
    clock.move(2)
    with pytest.raises(DroverError, match="apikey_1 has expired: ask for another") as refused:
        await keys.caller(TOKEN)
    assert refused.value.reason is Reason.UNAUTHENTICATED
    assert registry.asked == 1


@pytest.mark.parametrize("failure", [AWAY, DroverError(Reason.INTERNAL, "odd"), ValueError("odd")])
async def test_what_was_known_stands_while_nobody_can_tell_but_not_for_ever(
    keys: StoredKeys, registry: Registry, clock: ManualClock, failure: Exception
) -> None:
    await keys.caller(TOKEN)
    registry.failure = failure
    clock.move(SECONDS)
    for _ in range(3):
        await keys.caller(TOKEN)
    assert registry.asked == 2  # who is away is not asked with every request
    clock.move(PATIENCE - SECONDS)
    await keys.caller(TOKEN)
    clock.move(SECONDS)
    with pytest.raises(type(failure)):
        await keys.caller(TOKEN)
    registry.failure = None
    assert (await keys.caller(TOKEN)).key_id == "apikey_1"


async def test_a_key_that_was_never_seen_opens_nothing_while_nobody_can_tell(
    keys: StoredKeys, registry: Registry
) -> None:
    registry.failure = AWAY
    with pytest.raises(DroverError) as refused:
        await keys.caller(TOKEN)
    assert refused.value.reason is Reason.UNAVAILABLE


async def test_a_registry_that_hangs_holds_up_nobody_who_is_known(
    keys: StoredKeys, registry: Registry, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_keys, "_WAIT", 0.01)
    await keys.caller(TOKEN)
    registry.answering.clear()
    clock.move(SECONDS)
    assert (await keys.caller(TOKEN)).key_id == "apikey_1"
    clock.move(SECONDS)
    assert registry.key is not None
    registry.key.revoked_at.GetCurrentTime()
    registry.answering.set()
    with pytest.raises(DroverError, match="revoked"):
        await keys.caller(TOKEN)
    assert registry.asked == 2  # the one that had hung


async def test_no_more_keys_are_known_than_there_is_room_for(
    keys: StoredKeys, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_keys, "_KEYS", 2)
    for digest in (b"a", b"b", b"a", b"c", b"a"):
        await keys.caller(Token(KEY_KIND_API, digest))
    assert registry.asked == 3
    await keys.caller(Token(KEY_KIND_API, b"b"))
    assert registry.asked == 4
