from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.environment.v1.environment_pb2 import Environment
from services.registry.domain.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.registry.domain.ports import EnvironmentStore

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_elsewhere"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ALL = Listing(limit=100, include_archived=True)


def environment(number: int, name: str | None = None) -> Environment:
    made = Environment(id=f"env_{number}", name=name or f"name {number}")
    made.config.cloud.networking.unrestricted.SetInParent()
    made.created_at.FromDatetime(NOON + timedelta(seconds=number))
    return made


def rename(name: str) -> Callable[[Environment], Environment]:
    def change(stored: Environment) -> Environment:
        changed = Environment()
        changed.CopyFrom(stored)
        changed.name = name
        return changed

    return change


async def test_what_was_added_is_read_back_whole(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1))
    assert await environments.get(HOME, "env_1") == environment(1)


async def test_a_name_is_taken_once_per_workspace(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1, "data"))
    await environments.add(ELSEWHERE, environment(2, "data"))
    with pytest.raises(DroverError, match="'data' exists") as refusal:
        await environments.add(HOME, environment(3, "data"))
    assert refusal.value.reason is Reason.ALREADY_EXISTS
    assert [one.id for one in await environments.page(HOME, ALL)] == ["env_1"]


async def test_renaming_to_a_taken_name_changes_nothing(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1, "data"))
    await environments.add(HOME, environment(2, "web"))
    with pytest.raises(DroverError) as refusal:
        await environments.revise(HOME, "env_2", rename("data"))
    assert refusal.value.reason is Reason.ALREADY_EXISTS
    assert (await environments.get(HOME, "env_2")).name == "web"


async def test_renaming_to_its_own_name_is_no_conflict(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1, "data"))
    assert (await environments.revise(HOME, "env_1", rename("data"))).name == "data"


@pytest.mark.parametrize("gone", ["archive", "delete", "rename"])
async def test_a_name_is_free_once_its_environment_gives_it_up(
    environments: EnvironmentStore, gone: str
) -> None:
    await environments.add(HOME, environment(1, "data"))
    if gone == "archive":
        await environments.archive(HOME, "env_1", NOON)
    elif gone == "delete":
        await environments.delete(HOME, "env_1")
    else:
        await environments.revise(HOME, "env_1", rename("old data"))
    await environments.add(HOME, environment(2, "data"))
    assert (await environments.get(HOME, "env_2")).name == "data"


async def test_archiving_again_keeps_the_first_time(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1))
    first = await environments.archive(HOME, "env_1", NOON)
    again = await environments.archive(HOME, "env_1", NOON + timedelta(hours=1))
    assert first == again
    assert again.archived_at.ToDatetime(UTC) == NOON


@pytest.mark.parametrize("archived", [True, False])
async def test_a_deleted_environment_is_gone(
    environments: EnvironmentStore, *, archived: bool
) -> None:
    await environments.add(HOME, environment(1))
    if archived:
        await environments.archive(HOME, "env_1", NOON)
    await environments.delete(HOME, "env_1")
    for call in (environments.get(HOME, "env_1"), environments.delete(HOME, "env_1")):
        with pytest.raises(DroverError) as refusal:
            await call
        assert refusal.value.reason is Reason.ENVIRONMENT_NOT_FOUND


async def test_another_workspace_sees_and_changes_nothing(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1))
    assert await environments.page(ELSEWHERE, ALL) == []
    for call in (
        environments.get(ELSEWHERE, "env_1"),
        environments.revise(ELSEWHERE, "env_1", rename("x")),
        environments.archive(ELSEWHERE, "env_1", NOON),
        environments.delete(ELSEWHERE, "env_1"),
    ):
        with pytest.raises(DroverError) as refusal:
            await call
        assert refusal.value.reason is Reason.ENVIRONMENT_NOT_FOUND
    assert await environments.get(HOME, "env_1") == environment(1)


async def test_a_change_that_fails_keeps_nothing(environments: EnvironmentStore) -> None:
    await environments.add(HOME, environment(1))

    def fail(stored: Environment) -> Environment:
        stored.name = "half done"
        raise DroverError(Reason.INVALID_ARGUMENT, "no")

    with pytest.raises(DroverError, match="no"):
        await environments.revise(HOME, "env_1", fail)
    assert await environments.get(HOME, "env_1") == environment(1)


async def test_pages_are_newest_first_and_go_on_after_a_position(
    environments: EnvironmentStore,
) -> None:
    for number in (2, 1, 3, 4):
        await environments.add(HOME, environment(number))
    await environments.archive(HOME, "env_2", NOON)
    after = Position(micros(NOON + timedelta(seconds=4)), "env_4")
    hidden = await environments.page(HOME, Listing(limit=10, after=after))
    shown = await environments.page(HOME, Listing(limit=10, after=after, include_archived=True))
    assert [one.id for one in hidden] == ["env_3", "env_1"]
    assert [one.id for one in shown] == ["env_3", "env_2", "env_1"]


async def test_a_name_that_all_processes_want_at_once_goes_to_one(
    all_environments: list[EnvironmentStore],
) -> None:
    stores = all_environments * 10
    added = await asyncio.gather(
        *[store.add(HOME, environment(n, "data")) for n, store in enumerate(stores)],
        return_exceptions=True,
    )
    refused = [one for one in added if isinstance(one, DroverError)]
    assert {one.reason for one in refused} == {Reason.ALREADY_EXISTS}
    [kept] = await all_environments[-1].page(HOME, ALL)
    assert added.count(kept) == 1 == len(added) - len(refused)


async def test_a_name_that_several_take_on_at_once_goes_to_one(
    all_environments: list[EnvironmentStore],
) -> None:
    stores = all_environments * 6
    for number, store in enumerate(stores):
        await store.add(HOME, environment(number))
    renamed = await asyncio.gather(
        *[store.revise(HOME, f"env_{n}", rename("data")) for n, store in enumerate(stores)],
        return_exceptions=True,
    )
    refused = [one for one in renamed if isinstance(one, DroverError)]
    assert {one.reason for one in refused} == {Reason.ALREADY_EXISTS}
    assert len(refused) == len(stores) - 1
    names = [one.name for one in await all_environments[0].page(HOME, ALL)]
    assert names.count("data") == 1


async def test_changes_from_all_processes_are_made_one_after_the_other(
    all_environments: list[EnvironmentStore],
) -> None:
    await all_environments[0].add(HOME, environment(1, "0"))

    def count(stored: Environment) -> Environment:
        return rename(str(int(stored.name) + 1))(stored)

    stores = all_environments * 15
    await asyncio.gather(*[store.revise(HOME, "env_1", count) for store in stores])
    assert (await all_environments[-1].get(HOME, "env_1")).name == str(len(stores))


async def test_an_environment_that_several_delete_is_deleted_by_one(
    all_environments: list[EnvironmentStore],
) -> None:
    await all_environments[0].add(HOME, environment(1))
    deleted = await asyncio.gather(
        *[store.delete(HOME, "env_1") for store in all_environments * 5], return_exceptions=True
    )
    assert deleted.count(None) == 1
    refused = {one.reason for one in deleted if isinstance(one, DroverError)}
    assert refused == {Reason.ENVIRONMENT_NOT_FOUND}
