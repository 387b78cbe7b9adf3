"""V10: the key provider is down, slow, or rotates its key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chassis.errors import CannotStartError, DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.conditions import opened
from services.vault_proxy.crypto.environment_keys import EnvironmentKeys
from services.vault_proxy.crypto.keyring import Keyring
from services.vault_proxy.crypto.transit import TransitKeys
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.vaults import SqlVaultStore
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys
from services.vault_proxy.vault.installation import installation_key
from services.vault_proxy.vault.rotation import Progress, Rotation
from tests.doubles.databases import migrated
from tests.doubles.session_world import ManualClock
from tests.doubles.transit import TOKEN, running_transit
from tests.doubles.vault import HOME, VaultDouble, bearer, environment_keys, keyring, variable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from storage import Database
    from tests.doubles.transit import Transit

SECONDS = 300.0


@pytest.fixture
def transit() -> Iterator[Transit]:
    with running_transit() as transit:
        yield transit


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with migrated(f"sqlite:///{tmp_path / 'vault_proxy.db'}", SCHEMA) as database:
        yield database


def keys(transit: Transit, seconds: float = 5.0) -> TransitKeys:
    return TransitKeys(transit.url, "drover", token=Secret(TOKEN), seconds=seconds)


async def vault_over(transit: Transit, seconds: float = 5.0) -> tuple[VaultDouble, ManualClock]:
    clock = ManualClock()
    vault = VaultDouble(Keyring(keys(transit, seconds)), clock, key_seconds=SECONDS)
    await vault.new_vault("vlt_1")
    await vault.add("vlt_1", **variable("KEY", "canary"))
    return vault, clock


async def values(vault: VaultDouble) -> list[str]:
    found = await vault.holdings.environment_credentials(HOME, ["vlt_1"])
    return [credential.value.open() for credential in found]


async def test_credentials_go_on_without_the_provider_until_their_time_is_up(
    transit: Transit,
) -> None:
    vault, clock = await vault_over(transit)
    assert await values(vault) == ["canary"]
    asked = len(transit.requests)
    transit.status = 503
    clock.move(SECONDS - 1)
    assert await values(vault) == ["canary"]
    assert len(transit.requests) == asked
    clock.move(2)
    with pytest.raises(DroverError, match="the key provider 'transit' does not answer") as refused:
        await values(vault)
    assert refused.value.reason is Reason.UNAVAILABLE
    assert TOKEN not in refused.value.message
    transit.status = 0
    assert await values(vault) == ["canary"]


async def test_nothing_is_stored_while_the_provider_is_down(transit: Transit) -> None:
    vault, _ = await vault_over(transit)
    transit.status = 500
    with pytest.raises(DroverError) as refused:
        await vault.add("vlt_1", **bearer("canary"))
    assert refused.value.reason is Reason.UNAVAILABLE
    assert len(await vault.store.live(HOME, ["vlt_1"])) == 1


async def test_slow_provider_is_waited_for_within_a_deadline(transit: Transit) -> None:
    vault, _ = await vault_over(transit, seconds=0.1)
    vault.envelopes.forget()
    transit.stalled.set()
    async with asyncio.timeout(20):  # the provider itself would never answer
        with pytest.raises(DroverError) as refused:
            await values(vault)
    assert refused.value.reason is Reason.UNAVAILABLE
    transit.stalled.clear()
    transit.released.set()
    assert await values(vault) == ["canary"]


async def test_provider_that_is_not_there_is_unavailable() -> None:
    gone = TransitKeys("http://127.0.0.1:1", "drover", token=Secret(TOKEN))
    with pytest.raises(DroverError) as refused:
        await gone.current()
    assert refused.value.reason is Reason.UNAVAILABLE


async def test_renewed_token_is_read_from_its_file(transit: Transit, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hvs.expired\n")
    provider = TransitKeys(transit.url, "drover", token_file=file)
    with pytest.raises(DroverError, match="does not take the token"):
        await provider.current()
    file.write_text(f"{TOKEN}\n")
    assert await provider.current() == "transit:drover:1"


async def test_key_of_another_record_does_not_unwrap(transit: Transit) -> None:
    provider = keys(transit)
    wrapped = await provider.wrap(b"k" * 32, b"place")
    assert await provider.unwrap(wrapped, b"place") == b"k" * 32
    with pytest.raises(DroverError) as refused:
        await provider.unwrap(wrapped, b"elsewhere")
    assert refused.value.reason is Reason.INTERNAL


async def test_secrets_open_after_another_key_of_the_engine_was_chosen(transit: Transit) -> None:
    wrapped = await keys(transit).wrap(b"k" * 32, b"place")
    other = TransitKeys(transit.url, "other", token=Secret(TOKEN))
    assert await other.unwrap(wrapped, b"place") == b"k" * 32
    assert any(path.endswith("/decrypt/drover") for path in transit.requests)


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (400, Reason.INTERNAL, "aes256-gcm96"),
        (404, Reason.UNAVAILABLE, "has no key 'drover' under 'transit'"),
        (403, Reason.UNAVAILABLE, "does not take the token"),
        (302, Reason.UNAVAILABLE, "answers what is no answer"),
    ],
)
async def test_what_is_wrong_with_the_engine_is_said_in_words_of_ours(
    transit: Transit, status: int, reason: Reason, says: str
) -> None:
    transit.status = status
    with pytest.raises(DroverError, match=says) as refused:
        await keys(transit).wrap(b"k" * 32, b"place")
    assert refused.value.reason is reason
    assert "as the test says" not in refused.value.message


def test_provider_without_a_token_does_not_start() -> None:
    with pytest.raises(CannotStartError, match="DROVER_VAULT_TRANSIT_TOKEN_FILE"):
        TransitKeys("http://127.0.0.1:1", "drover")


async def rotated(rotation: Rotation, *, new_key: bool = False) -> list[Progress]:
    return [progress async for progress in rotation.run(new_key=new_key)]


async def filled(database: Database, ring: Keyring, credentials: int = 3) -> VaultDouble:
    clock = ManualClock()
    vault = VaultDouble(
        ring,
        clock,
        SqlCredentialStore(database, clock),
        SqlVaultStore(database, clock),
    )
    await vault.new_vault("vlt_1")
    for number in range(credentials):
        await vault.add("vlt_1", **variable(f"KEY_{number}", f"canary-{number}"))
    return vault


async def test_rotation_wraps_every_key_anew_and_all_opens_as_before(
    transit: Transit, database: Database
) -> None:
    ring = Keyring(keys(transit))
    vault, wrapped = await filled(database, ring), SqlWrappedKeys(database)
    before = await installation_key(wrapped, ring)
    progress = await rotated(Rotation(wrapped, ring), new_key=True)
    assert (progress[0].done, progress[0].total) == (0, 4)
    assert (progress[-1].done, progress[-1].key) == (4, "transit:drover:2")
    transit.versions[0] = bytes(32)  # destroyed
    vault.envelopes.forget()
    assert await values(vault) == ["canary-0", "canary-1", "canary-2"]
    assert (await installation_key(wrapped, ring)).derived("x") == before.derived("x")
    assert await rotated(Rotation(wrapped, ring)) == [Progress("transit:drover:2", 4, 4)]


async def test_keys_of_another_database_keep_it_from_starting_and_are_told_as_such(
    database: Database,
) -> None:
    wrapped = SqlWrappedKeys(database)
    first, second = (environment_keys(number) for number in (1, 2))
    await opened(wrapped, Keyring(EnvironmentKeys(first)))
    others = Secret("1:" + second.open().partition(":")[2])
    for others_key in (others, second):
        with pytest.raises(CannotStartError, match="restore those from their backup"):
            await opened(wrapped, Keyring(EnvironmentKeys(others_key)))


async def test_rotation_that_was_broken_off_goes_on_with_what_is_left(
    transit: Transit, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.vault_proxy.vault.rotation._BATCH", 2)
    ring = Keyring(keys(transit))
    vault, wrapped = await filled(database, ring, 5), SqlWrappedKeys(database)
    seen = []
    run = Rotation(wrapped, ring).run(new_key=True)
    async for progress in run:
        seen.append(progress.done)
        if progress.done >= 2:
            transit.status = 503
            break
    await run.aclose()
    assert seen == [0, 2]
    with pytest.raises(DroverError):
        await rotated(Rotation(wrapped, ring))
    transit.status = 0
    assert [one.done for one in await rotated(Rotation(wrapped, ring))] == [2, 4, 5]
    vault.envelopes.forget()
    assert len(await values(vault)) == 5


async def test_credentials_that_are_written_meanwhile_are_not_lost(database: Database) -> None:
    old = EnvironmentKeys(environment_keys(1))
    vault = await filled(database, Keyring(old), 4)
    new = Rotation(SqlWrappedKeys(database), keyring(1, 2))
    made = [record.credential for record in await vault.store.live(HOME, ["vlt_1"])]

    async def write(number: int) -> None:
        auth = {"environment_variable": {"secret_value": f"fresh-{number}"}}
        await vault.change(made[number], auth=auth)

    await asyncio.gather(rotated(new), *(write(number) for number in range(4)))
    again = VaultDouble(keyring(1, 2), ManualClock(), vault.store, vault.vault_store)
    assert await values(again) == [f"fresh-{number}" for number in range(4)]


async def test_rotation_moves_from_one_provider_to_another(
    transit: Transit, database: Database
) -> None:
    former = EnvironmentKeys(environment_keys(1))
    await filled(database, Keyring(former))
    both = Keyring(keys(transit), [former])
    assert (await rotated(Rotation(SqlWrappedKeys(database), both)))[-1].done == 3
    alone = VaultDouble(
        Keyring(keys(transit)), ManualClock(), SqlCredentialStore(database, ManualClock())
    )
    assert await values(alone) == ["canary-0", "canary-1", "canary-2"]


async def test_key_that_does_not_open_holds_up_no_other_and_is_told_of(
    database: Database,
) -> None:
    vault = await filled(database, keyring(1))
    lost = VaultDouble(keyring(7), ManualClock(), vault.store, vault.vault_store)
    await lost.add("vlt_1", **bearer("canary"))
    wrapped = SqlWrappedKeys(database)
    with pytest.raises(DroverError, match="1 stored keys do not open"):
        await rotated(Rotation(wrapped, keyring(1, 2)))
    assert await wrapped.count("environment:2") == (4, 1)


async def test_no_plaintext_reaches_the_disk(database: Database, tmp_path: Path) -> None:
    await filled(database, keyring(1))
    await rotated(Rotation(SqlWrappedKeys(database), keyring(1, 2)))
    files = [file for file in tmp_path.iterdir() if file.is_file()]
    assert files
    for file in files:
        assert b"canary" not in file.read_bytes()
