"""What every store of environments' keys promises."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.environment.v1.environment_key_pb2 import EnvironmentKey
from services.registry.domain.environment_key import Holder
from services.registry.domain.ports import Listing
from tests.contract.registry.test_environment_store import ALL, ELSEWHERE, HOME, NOON, environment
from tests.contract.registry.test_once import once

if TYPE_CHECKING:
    from drover.environment.v1.environment_pb2 import Environment
    from services.registry.domain.ports import EnvironmentKeyStore, EnvironmentStore

LIVE = Listing(limit=100)


def hosted(number: int) -> Environment:
    made = environment(number)
    made.config.self_hosted.SetInParent()
    return made


def key(number: int, environment_id: str = "env_1") -> EnvironmentKey:
    made = EnvironmentKey(id=f"envkey_{number}", environment_id=environment_id, hint=f"..{number}")
    made.created_at.FromDatetime(NOON + timedelta(seconds=number))
    return made


def digest(number: int) -> bytes:
    return bytes([number]) * 32


@pytest.fixture(autouse=True)
async def an_environment(environments: EnvironmentStore) -> None:
    await environments.add(HOME, hosted(1))


async def test_a_key_is_told_by_its_digest_alone(keys: EnvironmentKeyStore) -> None:
    assert await keys.add(HOME, key(1), digest(1)) == key(1)
    assert await keys.holder(digest(1)) == Holder(HOME, "env_1", "envkey_1")
    for other in (digest(2), digest(1)[:-1], b""):
        assert await keys.holder(other) is None


async def test_a_revoked_key_opens_nothing_and_keeps_its_time(keys: EnvironmentKeyStore) -> None:
    await keys.add(HOME, key(1), digest(1))
    await keys.add(HOME, key(2), digest(2))
    first = await keys.revoke(HOME, "env_1", "envkey_1", NOON)
    assert first.revoked_at.ToMicroseconds() == micros(NOON)
    assert await keys.revoke(HOME, "env_1", "envkey_1", NOON + timedelta(hours=1)) == first
    assert await keys.holder(digest(1)) is None
    assert await keys.holder(digest(2)) is not None
    assert [one.id for one in await keys.page(HOME, "env_1", LIVE)] == ["envkey_2"]
    assert [one.id for one in await keys.page(HOME, "env_1", ALL)] == ["envkey_2", "envkey_1"]


async def test_keys_end_with_their_environment(
    keys: EnvironmentKeyStore, environments: EnvironmentStore
) -> None:
    await keys.add(HOME, key(1), digest(1))
    await environments.delete(HOME, "env_1")
    with pytest.raises(DroverError):
        await keys.page(HOME, "env_1", ALL)
    assert await keys.holder(digest(1)) is None
    with pytest.raises(DroverError):
        await keys.add(HOME, key(2), digest(2))


async def test_keys_outlive_the_archiving_of_their_environment_whose_sessions_go_on(
    keys: EnvironmentKeyStore, environments: EnvironmentStore
) -> None:
    await keys.add(HOME, key(1), digest(1))
    await environments.archive(HOME, "env_1", NOON)
    await keys.add(HOME, key(2), digest(2))
    assert {one.id for one in await keys.page(HOME, "env_1", LIVE)} == {"envkey_1", "envkey_2"}
    for number in (1, 2):
        assert await keys.holder(digest(number)) is not None


async def test_environments_that_drover_makes_sandboxes_for_have_no_keys(
    keys: EnvironmentKeyStore, environments: EnvironmentStore
) -> None:
    await environments.add(HOME, environment(2))
    with pytest.raises(DroverError, match="only self_hosted ones") as refused:
        await keys.add(HOME, key(1, "env_2"), digest(1))
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert await keys.holder(digest(1)) is None


async def test_nothing_is_seen_from_another_workspace_or_environment(
    keys: EnvironmentKeyStore, environments: EnvironmentStore
) -> None:
    await environments.add(HOME, hosted(2))
    await keys.add(HOME, key(1), digest(1))
    for call in (
        keys.add(ELSEWHERE, key(2), digest(2)),
        keys.page(ELSEWHERE, "env_1", ALL),
        keys.revoke(ELSEWHERE, "env_1", "envkey_1", NOON),
    ):
        with pytest.raises(DroverError) as unseen:
            await call
        assert unseen.value.reason is Reason.ENVIRONMENT_NOT_FOUND
    with pytest.raises(DroverError) as other:
        await keys.revoke(HOME, "env_2", "envkey_1", NOON)
    assert other.value.reason is Reason.NOT_FOUND
    assert await keys.holder(digest(1)) is not None


async def test_pages_follow_one_another(keys: EnvironmentKeyStore) -> None:
    for number in (1, 2, 3):
        await keys.add(HOME, key(number), digest(number))
    first = await keys.page(HOME, "env_1", Listing(limit=2))
    assert [one.id for one in first] == ["envkey_3", "envkey_2"]
    after = Position(micros(first[-1].created_at), first[-1].id)
    assert list(await keys.page(HOME, "env_1", Listing(2, after))) == [key(1)]


async def test_a_key_is_made_and_revoked_once(keys: EnvironmentKeyStore) -> None:
    first, again = once(EnvironmentKey, "add"), once(EnvironmentKey, "add")
    assert await keys.add(HOME, key(1), digest(1), first) == key(1)
    assert await keys.add(HOME, key(2), digest(2), again) == key(1)
    assert (first.replayed, again.replayed) == (False, True)
    assert await keys.holder(digest(2)) is None
    ended = await keys.revoke(HOME, "env_1", "envkey_1", NOON, once(EnvironmentKey, "end"))
    later = NOON + timedelta(hours=1)
    repeated = await keys.revoke(HOME, "env_1", "envkey_1", later, once(EnvironmentKey, "end"))
    assert repeated == ended
