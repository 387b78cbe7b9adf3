"""What the store of API keys promises, over both engines."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from drover.key.v1.api_key_pb2 import ApiKey
from services.registry.domain.ports import Listing
from services.registry.store.api_keys import SqlApiKeyStore
from tests.contract.registry.test_environment_store import ALL, ELSEWHERE, HOME, NOON
from tests.contract.registry.test_once import once

if TYPE_CHECKING:
    from services.registry.domain.ports import ApiKeyStore
    from storage import Database

LIVE = Listing(limit=100)


def key(number: int, workspace_id: str = HOME) -> ApiKey:
    made = ApiKey(id=f"apikey_{number}", workspace_id=workspace_id, scopes=["read", "admin"])
    made.created_at.FromDatetime(NOON + timedelta(seconds=number))
    made.expires_at.FromDatetime(NOON + timedelta(days=number))
    return made


def digest(number: int) -> bytes:
    return bytes([number]) * 32


@pytest.fixture
def keys(emptied: list[Database]) -> ApiKeyStore:
    return SqlApiKeyStore(emptied[0], SystemClock())


@pytest.fixture
def others(emptied: list[Database]) -> ApiKeyStore:
    """The store as another process has it."""
    return SqlApiKeyStore(emptied[1], SystemClock())


async def test_a_key_is_told_by_its_digest_alone_by_every_process(
    keys: ApiKeyStore, others: ApiKeyStore
) -> None:
    assert await keys.add(key(1), digest(1)) == key(1)
    assert await others.find(digest(1)) == key(1)
    for other in (digest(2), digest(1)[:-1], b""):
        assert await others.find(other) is None
    with pytest.raises((DroverError, IntegrityError)):
        await others.add(key(2), digest(1))


async def test_a_revoked_key_is_told_as_such_at_once_and_keeps_its_time(
    keys: ApiKeyStore, others: ApiKeyStore
) -> None:
    await keys.add(key(1), digest(1))
    ended = await keys.revoke(HOME, "apikey_1", NOON)
    assert ended.revoked_at.ToMicroseconds() == micros(NOON)
    assert await others.find(digest(1)) == ended
    assert await others.revoke(None, "apikey_1", NOON + timedelta(hours=1)) == ended
    assert await others.get(None, "apikey_1") == ended
    assert list(await others.page(HOME, LIVE)) == []
    assert list(await others.page(HOME, ALL)) == [ended]


async def test_a_workspaces_keys_are_seen_from_it_and_from_above_alone(keys: ApiKeyStore) -> None:
    await keys.add(key(1), digest(1))
    await keys.add(key(2, ELSEWHERE), digest(2))
    for call in (keys.get(ELSEWHERE, "apikey_1"), keys.revoke(ELSEWHERE, "apikey_1", NOON)):
        with pytest.raises(DroverError) as unseen:
            await call
        assert unseen.value.reason is Reason.NOT_FOUND
    assert not (await keys.get(HOME, "apikey_1")).HasField("revoked_at")
    assert list(await keys.page(ELSEWHERE, LIVE)) == [key(2, ELSEWHERE)]
    first = await keys.page(None, Listing(limit=1))
    assert list(first) == [key(2, ELSEWHERE)]
    after = Position(micros(first[0].created_at), first[0].id)
    assert list(await keys.page(None, Listing(2, after))) == [key(1)]


async def test_a_key_is_made_and_revoked_once(keys: ApiKeyStore, others: ApiKeyStore) -> None:
    again = once(ApiKey, "add")
    assert await keys.add(key(1), digest(1), once(ApiKey, "add")) == key(1)
    assert await others.add(key(2), digest(2), again) == key(1)
    assert again.replayed
    assert await keys.find(digest(2)) is None
    ended = await keys.revoke(HOME, "apikey_1", NOON, once(ApiKey, "end"))
    later = NOON + timedelta(hours=1)
    assert await others.revoke(HOME, "apikey_1", later, once(ApiKey, "end")) == ended
