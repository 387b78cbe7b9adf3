"""V9: what was swapped, flipped, re-bound or moved to another tenant does not open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from services.vault_proxy.crypto.envelope import Envelopes
from services.vault_proxy.crypto.sealer import InstallationKey
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.vault.places import credential_place, session_place
from tests.doubles.vault import HOME, URL, VaultDouble, bearer, keyring, variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from drover.vault.v1.credential_pb2 import Credential
    from services.vault_proxy.domain.vault_ports import Record


async def record_of(vault: VaultDouble, credential: Credential) -> Record:
    return await vault.store.load(HOME, credential.vault_id, credential.id)


@pytest.fixture
async def vault() -> VaultDouble:
    vault = VaultDouble()
    await vault.new_vault("vlt_1")
    await vault.new_vault("vlt_2")
    return vault


async def stays_closed(vault: VaultDouble, record: Record, workspace_id: str = HOME) -> None:
    vault.envelopes.forget()
    with pytest.raises(DroverError) as refused:
        await vault.holdings.opened(workspace_id, record)
    assert refused.value.reason is Reason.INTERNAL
    assert "canary" not in refused.value.message


async def test_row_of_another_credential_does_not_open(vault: VaultDouble) -> None:
    one = await record_of(vault, await vault.add("vlt_1", **variable("A", "canary-a")))
    two = await record_of(vault, await vault.add("vlt_1", **variable("B", "canary-b")))
    assert one.sealed is not None
    assert two.sealed is not None
    await stays_closed(vault, replace(one, sealed=two.sealed))
    await stays_closed(vault, replace(one, sealed=Sealed(one.sealed.key, two.sealed.ciphertext)))
    await stays_closed(vault, replace(one, sealed=Sealed(two.sealed.key, one.sealed.ciphertext)))


@pytest.mark.parametrize("part", ["ciphertext", "key"])
async def test_any_flipped_bit_keeps_it_closed(vault: VaultDouble, part: str) -> None:
    record = await record_of(vault, await vault.add("vlt_1", **bearer("canary")))
    assert record.sealed is not None
    sealed = record.sealed
    raw = sealed.ciphertext if part == "ciphertext" else sealed.key.blob
    for place in range(len(raw)):
        flipped = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        changed = (
            Sealed(sealed.key, flipped)
            if part == "ciphertext"
            else Sealed(WrappedKey(sealed.key.key, flipped), sealed.ciphertext)
        )
        await stays_closed(vault, replace(record, sealed=changed))
    for cut in (b"", raw[:11], raw[:-1]):
        await stays_closed(vault, replace(record, sealed=Sealed(sealed.key, cut)))


async def test_another_tenant_vault_or_id_keeps_it_closed(vault: VaultDouble) -> None:
    record = await record_of(vault, await vault.add("vlt_1", **bearer("canary")))
    await stays_closed(vault, record, workspace_id="wrkspc_other")
    for field, value in (("vault_id", "vlt_2"), ("id", "vcrd_other")):
        moved = type(record.credential).FromString(record.credential.SerializeToString())
        setattr(moved, field, value)
        await stays_closed(vault, replace(record, credential=moved))


def _other_host(credential: Credential) -> None:
    credential.auth.environment_variable.networking.limited.allowed_hosts[:] = ["evil.example"]


def _more_hosts(credential: Credential) -> None:
    credential.auth.environment_variable.networking.limited.allowed_hosts.append("evil.example")


def _any_host(credential: Credential) -> None:
    credential.auth.environment_variable.networking.unrestricted.SetInParent()


def _other_place(credential: Credential) -> None:
    credential.auth.environment_variable.injection_location.body = False


def _other_name(credential: Credential) -> None:
    credential.auth.environment_variable.secret_name = "B"  # noqa: S105  # a name


def _other_kind(credential: Credential) -> None:
    credential.auth.static_bearer.mcp_server_url = URL


@pytest.mark.parametrize(
    "change", [_other_host, _more_hosts, _any_host, _other_place, _other_name, _other_kind]
)
async def test_binding_that_was_widened_in_the_database_keeps_it_closed(
    vault: VaultDouble, change: Callable[[Credential], None]
) -> None:
    made = await vault.add("vlt_1", **variable("A", "canary", "api.example.com"))
    record = await record_of(vault, made)
    change(record.credential)
    await stays_closed(vault, record)


async def test_server_or_token_endpoint_that_was_changed_keeps_it_closed(
    vault: VaultDouble,
) -> None:
    record = await record_of(vault, await vault.add("vlt_1", **bearer("canary")))
    record.credential.auth.static_bearer.mcp_server_url = "https://evil.example/mcp"
    await stays_closed(vault, record)


async def test_key_is_bound_to_the_name_of_the_key_that_wraps_it() -> None:
    vault = VaultDouble(keys=keyring(1, 2))
    await vault.new_vault("vlt_1")
    record = await record_of(vault, await vault.add("vlt_1", **bearer("canary")))
    assert record.sealed is not None
    assert record.sealed.key.key == "environment:2"
    for name in ("environment:1", "environment:3", "file:2", "transit:drover:2", ""):
        key = WrappedKey(name, record.sealed.key.blob)
        await stays_closed(vault, replace(record, sealed=Sealed(key, record.sealed.ciphertext)))


async def test_old_key_version_opens_for_as_long_as_it_is_kept_and_no_longer() -> None:
    clock = SystemClock()
    old = Envelopes(keyring(1), clock, 300)
    place = session_place(HOME, "sesn_1", "sesrsc_1")
    sealed = await old.seal(b"canary", place)
    assert await Envelopes(keyring(1, 2), clock, 300).open(sealed, place) == b"canary"
    with pytest.raises(DroverError, match="'environment:1', which this installation does not have"):
        await Envelopes(keyring(2), clock, 300).open(sealed, place)


async def test_one_spoilt_row_takes_no_other_credential_with_it(vault: VaultDouble) -> None:
    spoilt = await vault.add("vlt_1", **variable("A", "canary-a"))
    await vault.add("vlt_1", **variable("B", "canary-b"))
    record = await record_of(vault, spoilt)
    assert record.sealed is not None
    vault.store._shared.credentials[HOME, "vlt_1", spoilt.id] = replace(  # type: ignore[attr-defined]
        record, sealed=Sealed(record.sealed.key, b"x" * 64)
    )
    found = await vault.holdings.environment_credentials(HOME, ["vlt_1"])
    assert [credential.name for credential in found] == ["B"]


async def test_what_is_sealed_with_the_installations_key_opens_for_its_purpose_alone() -> None:
    key = InstallationKey(bytes(32))
    sealed = await key.seal(b"canary", b"session a")
    assert await key.open(sealed, b"session a") == b"canary"
    for other, bound in ((key, b"session b"), (InstallationKey(bytes(31) + b"1"), b"session a")):
        with pytest.raises(DroverError) as refused:
            await other.open(sealed, bound)
        assert refused.value.reason is Reason.INTERNAL
    assert key.derived("grants") == InstallationKey(bytes(32)).derived("grants")
    assert key.derived("grants") != key.derived("placeholders")
    assert "0" not in repr(key)


async def test_places_that_only_read_alike_are_different() -> None:
    made = VaultDouble()
    await made.new_vault("vlt_1")
    credential = await made.add("vlt_1", **bearer("canary"))
    assert credential_place("a", credential) != credential_place("b", credential)
    ab = session_place("w", "ab", "c")
    assert ab.key_context != session_place("w", "a", "bc").key_context
