from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from catalogue.resources.once import Once
from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.api.v1.request_key_pb2 import RequestKey
from drover.vault.v1.credential_pb2 import Credential
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.domain.vault_ports import Listing, Record, Replacement, StaleError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.contract.vault_proxy.conftest import Stores

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_elsewhere"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ALL = Listing(limit=100, include_archived=True)
ACTIVE = Listing(limit=100)


def vault(number: int) -> Vault:
    made = Vault(id=f"vlt_{number}", display_name=f"vault {number}")
    made.created_at.FromDatetime(NOON + timedelta(seconds=number))
    return made


def credential(number: int, name: str | None = None, vault_id: str = "vlt_1") -> Credential:
    made = Credential(id=f"vcrd_{number}", vault_id=vault_id)
    made.auth.environment_variable.secret_name = name or f"KEY_{number}"
    made.created_at.FromDatetime(NOON + timedelta(seconds=number))
    return made


def sealed(text: str = "a") -> Sealed:
    return Sealed(WrappedKey("file:1", f"key of {text}".encode()), text.encode())


def named(credential: Credential, name: str) -> Credential:
    changed = Credential.FromString(credential.SerializeToString())
    changed.display_name = name
    return changed


def once(key: str) -> Once[Credential]:
    return Once(
        RequestKey(id=key.encode(), fingerprint=b"f"),
        pack=lambda result: result.SerializeToString(),
        unpack=Credential.FromString,
    )


async def refused(call: Awaitable[object]) -> Reason:
    with pytest.raises(DroverError) as error:
        await call
    return error.value.reason


@pytest.fixture(autouse=True)
async def vaults(stores: Stores) -> None:
    await stores.vaults.add(HOME, vault(1))
    await stores.vaults.add(HOME, vault(2))


async def test_vaults_are_read_back_whole_in_their_workspace_alone(stores: Stores) -> None:
    assert await stores.vaults.get(HOME, "vlt_1") == vault(1)
    for call in (
        stores.vaults.get(ELSEWHERE, "vlt_1"),
        stores.vaults.revise(ELSEWHERE, "vlt_1", lambda stored: stored),
        stores.vaults.archive(ELSEWHERE, "vlt_1", NOON),
        stores.vaults.delete(ELSEWHERE, "vlt_1"),
        stores.vaults.check(ELSEWHERE, ["vlt_1"]),
        stores.credentials.page(ELSEWHERE, "vlt_1", ALL),
        stores.credentials.add(ELSEWHERE, credential(1), sealed()),
    ):
        assert await refused(call) is Reason.NOT_FOUND
    assert await stores.vaults.page(ELSEWHERE, ALL) == []


async def test_vaults_are_listed_newest_first_and_archived_ones_on_request(stores: Stores) -> None:
    await stores.vaults.archive(HOME, "vlt_2", NOON)
    assert [one.id for one in await stores.vaults.page(HOME, ACTIVE)] == ["vlt_1"]
    assert [one.id for one in await stores.vaults.page(HOME, ALL)] == ["vlt_2", "vlt_1"]
    after = Listing(1, Position(micros(vault(2).created_at), "vlt_2"), include_archived=True)
    assert [one.id for one in await stores.vaults.page(HOME, after)] == ["vlt_1"]


async def test_archived_vault_keeps_its_time(stores: Stores) -> None:
    first = await stores.vaults.archive(HOME, "vlt_1", NOON)
    again = await stores.vaults.archive(HOME, "vlt_1", NOON + timedelta(days=1))
    assert first == again
    assert first.archived_at.ToDatetime(UTC) == NOON


async def test_check_says_what_is_unknown_before_what_is_archived(stores: Stores) -> None:
    await stores.vaults.check(HOME, ["vlt_1", "vlt_2"])
    await stores.vaults.archive(HOME, "vlt_1", NOON)
    assert await refused(stores.vaults.check(HOME, ["vlt_2", "vlt_1"])) is Reason.ARCHIVED
    assert await refused(stores.vaults.check(HOME, ["vlt_1", "vlt_9"])) is Reason.NOT_FOUND


async def test_archiving_a_vault_purges_the_secrets_of_its_credentials(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1), sealed())
    await stores.vaults.archive(HOME, "vlt_1", NOON)
    found = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    assert found.sealed is None
    assert found.credential.archived_at.ToDatetime(UTC) == NOON
    assert await stores.credentials.live(HOME, ["vlt_1"]) == []
    refusal = await refused(stores.credentials.add(HOME, credential(2), sealed()))
    assert refusal is Reason.ARCHIVED


async def test_deleting_a_vault_leaves_nothing_of_its_credentials(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1), sealed())
    await stores.vaults.delete(HOME, "vlt_1")
    assert await refused(stores.vaults.get(HOME, "vlt_1")) is Reason.NOT_FOUND
    assert await refused(stores.credentials.load(HOME, "vlt_1", "vcrd_1")) is Reason.NOT_FOUND


async def test_credential_is_of_its_vault_and_workspace_alone(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1), sealed())
    found = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    assert found == Record(credential(1), sealed(), 1)
    for workspace, vault_id in ((ELSEWHERE, "vlt_1"), (HOME, "vlt_2"), (HOME, "vlt_9")):
        for call in (
            stores.credentials.load(workspace, vault_id, "vcrd_1"),
            stores.credentials.archive(workspace, vault_id, "vcrd_1", NOON),
            stores.credentials.delete(workspace, vault_id, "vcrd_1"),
        ):
            assert await refused(call) is Reason.NOT_FOUND
    assert await stores.credentials.live(ELSEWHERE, ["vlt_1"]) == []


async def test_key_is_taken_until_its_credential_is_archived_or_deleted(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1, "KEY"), sealed())
    taken = await refused(stores.credentials.add(HOME, credential(2, "KEY"), sealed()))
    assert taken is Reason.ALREADY_EXISTS
    await stores.credentials.add(HOME, credential(3, "KEY", "vlt_2"), sealed())
    await stores.credentials.archive(HOME, "vlt_1", "vcrd_1", NOON)
    await stores.credentials.add(HOME, credential(4, "KEY"), sealed())
    await stores.credentials.delete(HOME, "vlt_1", "vcrd_4")
    await stores.credentials.add(HOME, credential(5, "KEY"), sealed())
    listed = await stores.credentials.page(HOME, "vlt_1", ALL)
    assert [one.id for one in listed] == ["vcrd_5", "vcrd_1"]
    assert [one.id for one in await stores.credentials.page(HOME, "vlt_1", ACTIVE)] == ["vcrd_5"]


async def test_vault_holds_no_more_than_twenty_active_ones(stores: Stores) -> None:
    for number in range(20):
        await stores.credentials.add(HOME, credential(number), sealed())
    full = await refused(stores.credentials.add(HOME, credential(20), sealed()))
    assert full is Reason.INVALID_ARGUMENT
    await stores.credentials.archive(HOME, "vlt_1", "vcrd_3", NOON)
    await stores.credentials.add(HOME, credential(20), sealed())


async def test_of_simultaneous_creations_with_one_key_one_succeeds(
    all_stores: list[Stores],
) -> None:
    calls = [
        all_stores[number % len(all_stores)].credentials.add(
            HOME, credential(number, "KEY"), sealed()
        )
        for number in range(8)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(outcome, Credential) for outcome in outcomes) == 1


async def test_replacement_counts_only_for_what_was_read(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1), sealed())
    read = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    first = Replacement(named(read.credential, "first"), sealed("b"))
    await stores.credentials.replace(HOME, read, first)
    with pytest.raises(StaleError):
        await stores.credentials.replace(HOME, read, Replacement(read.credential, sealed("c")))
    found = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    assert found == Record(first.credential, sealed("b"), 2)
    kept = Replacement(named(found.credential, "second"), None)
    await stores.credentials.replace(HOME, found, kept)
    found = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    assert found == Record(kept.credential, sealed("b"), 3)


async def test_error_of_a_change_is_raised_unless_the_request_was_answered_before(
    stores: Stores,
) -> None:
    await stores.credentials.add(HOME, credential(1), sealed())
    read = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    error = DroverError(Reason.INVALID_ARGUMENT, "no")
    call = once("k")
    await stores.credentials.replace(
        HOME, read, Replacement(named(read.credential, "a"), None), call
    )
    read = await stores.credentials.load(HOME, "vlt_1", "vcrd_1")
    assert await refused(stores.credentials.replace(HOME, read, error)) is error.reason
    again = once("k")
    assert (await stores.credentials.replace(HOME, read, error, again)).display_name == "a"
    assert again.replayed


async def test_live_credentials_come_in_the_order_of_the_vaults(stores: Stores) -> None:
    await stores.credentials.add(HOME, credential(1, vault_id="vlt_1"), sealed())
    await stores.credentials.add(HOME, credential(3, vault_id="vlt_2"), sealed())
    await stores.credentials.add(HOME, credential(2, vault_id="vlt_2"), sealed())
    await stores.credentials.add(HOME, credential(4, vault_id="vlt_2"), sealed())
    await stores.credentials.archive(HOME, "vlt_2", "vcrd_4", NOON)
    found = await stores.credentials.live(HOME, ["vlt_2", "vlt_1", "vlt_2"])
    assert [record.credential.id for record in found] == ["vcrd_2", "vcrd_3", "vcrd_1"]


async def test_every_change_of_credentials_is_counted_for_all_replicas(
    all_stores: list[Stores],
) -> None:
    here, there = all_stores[0], all_stores[-1]
    seen = [await there.credentials.revision(HOME)]
    await here.credentials.add(HOME, credential(1), sealed())
    seen.append(await there.credentials.revision(HOME))
    read = await here.credentials.load(HOME, "vlt_1", "vcrd_1")
    await here.credentials.replace(HOME, read, Replacement(read.credential, sealed("b")))
    seen.append(await there.credentials.revision(HOME))
    await here.credentials.archive(HOME, "vlt_1", "vcrd_1", NOON)
    seen.append(await there.credentials.revision(HOME))
    await here.credentials.delete(HOME, "vlt_1", "vcrd_1")
    seen.append(await there.credentials.revision(HOME))
    await here.vaults.archive(HOME, "vlt_1", NOON)
    seen.append(await there.credentials.revision(HOME))
    await here.vaults.delete(HOME, "vlt_1")
    seen.append(await there.credentials.revision(HOME))
    assert seen == sorted(set(seen))
    assert await there.credentials.revision(ELSEWHERE) == 0
