"""What is archived or deleted leaves no sealed secret in an SQLite file."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from services.vault_proxy.domain.grant_ports import StoredAuthority
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.domain.vault_ports import SessionSecretRow
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.grants import SqlAuthorities
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.store.vaults import SqlVaultStore
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys
from tests.doubles.databases import migrated
from tests.doubles.session_world import ManualClock
from tests.doubles.vault import HOME, VaultDouble, bearer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("way", ["archive", "delete", "archive vault", "delete vault"])
async def test_nothing_of_it_is_left_in_the_file(tmp_path: Path, way: str) -> None:
    file = tmp_path / "vault_proxy.db"
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        clock = ManualClock()
        store = SqlCredentialStore(database, clock)
        vault = VaultDouble(credentials=store, vaults=SqlVaultStore(database, clock))
        await vault.new_vault("vlt_1")
        made = await vault.add("vlt_1", **bearer("t" * 400))
        sealed = (await store.load(HOME, "vlt_1", made.id)).sealed
        assert sealed is not None
        if way == "archive":
            await vault.archive(made)
        elif way == "delete":
            await vault.safe.delete(HOME, "vlt_1", made.id, None)
        elif way == "archive vault":
            await vault.vault_store.archive(HOME, "vlt_1", datetime.now(UTC))
        else:
            await vault.vault_store.delete(HOME, "vlt_1")
    _no_trace(file, sealed)


@pytest.mark.parametrize("size", [10, 400, 4_000])
async def test_a_value_that_was_changed_leaves_no_older_one(tmp_path: Path, size: int) -> None:
    file = tmp_path / "vault_proxy.db"
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        clock = ManualClock()
        store = SqlCredentialStore(database, clock)
        vault = VaultDouble(credentials=store, vaults=SqlVaultStore(database, clock))
        await vault.new_vault("vlt_1")
        made = await vault.add("vlt_1", **bearer("t" * 400))
        sealed = (await store.load(HOME, "vlt_1", made.id)).sealed
        assert sealed is not None
        await vault.change(made, auth={"static_bearer": {"token": "n" * size}})
    _no_trace(file, sealed)


@pytest.mark.parametrize("size", [10, 300, 4_000])
async def test_a_rotated_token_of_a_session_leaves_no_older_one(tmp_path: Path, size: int) -> None:
    file = tmp_path / "vault_proxy.db"
    first = Sealed(WrappedKey("file:1", b"w" * 60), b"canary" * 50)
    second = Sealed(WrappedKey("file:1", b"v" * 60), b"n" * size)
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        store = SqlSessionSecretStore(database)
        for sealed in (first, second):
            await store.put(SessionSecretRow(HOME, "sesn_1", "sesrsc_1", sealed), 0)
    _no_trace(file, first)


@pytest.mark.parametrize("size", [20, 60, 300])
async def test_a_key_that_was_wrapped_anew_leaves_no_older_wrapping(
    tmp_path: Path, size: int
) -> None:
    file = tmp_path / "vault_proxy.db"
    old = WrappedKey("file:1", b"w" * 60)
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        keys = SqlWrappedKeys(database)
        await keys.keep(old)
        [row] = await keys.some("file:2", 1)
        await keys.rewrapped([(row, WrappedKey("file:2", b"v" * size))])
    _no_trace(file, Sealed(old, old.blob))


async def test_the_key_of_a_deleted_sessions_authority_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "vault_proxy.db"
    at = datetime.now(UTC)
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        store = SqlAuthorities(database)
        await store.keep(StoredAuthority(HOME, "sesn_1", b"certificate", b"canary" * 50, at))
        await store.forget(HOME, "sesn_1")
    _no_trace(file, Sealed(WrappedKey("", b"canary" * 50), b"canary" * 50))


async def test_secrets_of_a_deleted_session_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "vault_proxy.db"
    sealed = Sealed(WrappedKey("file:1", b"w" * 60), b"canary" * 50)
    async with migrated(f"sqlite:///{file}", SCHEMA) as database:
        store = SqlSessionSecretStore(database)
        await store.put(SessionSecretRow(HOME, "sesn_1", "sesrsc_1", sealed), 0)
        assert await store.get("wrkspc_other", "sesn_1", "sesrsc_1") is None
        await store.forget("wrkspc_other", "sesn_1")
        assert await store.get(HOME, "sesn_1", "sesrsc_1") == sealed
        await store.forget(HOME, "sesn_1")
        assert await store.get(HOME, "sesn_1", "sesrsc_1") is None
    _no_trace(file, sealed)


def _no_trace(file: Path, sealed: Sealed) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    left = b"".join(path.read_bytes() for path in file.parent.glob("vault_proxy.db*"))
    assert sealed.ciphertext not in left
    assert sealed.key.blob not in left
