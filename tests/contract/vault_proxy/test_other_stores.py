"""What the vault proxy keeps besides vaults, on both engines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from chassis.clock import SystemClock
from drover.vault.v1.credential_pb2 import Credential
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.audit import AuditEntry, Kind, Outcome
from services.vault_proxy.domain.audit_ports import AuditFilter
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.domain.vault_ports import SessionSecretRow
from services.vault_proxy.store.audit import SqlAuditStore
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.store.vaults import SqlVaultStore
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys

if TYPE_CHECKING:
    from storage import Database

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_elsewhere"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

pytestmark = pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def database(databases: list[Database]) -> Database:
    return databases[0]


def sealed(text: str, key: str = "file:1") -> Sealed:
    return Sealed(WrappedKey(key, f"key of {text}".encode()), text.encode())


def secret(session: str, resource: str, text: str = "a", key: str = "file:1") -> SessionSecretRow:
    return SessionSecretRow(HOME, session, resource, sealed(text, key))


def entry(
    number: int, session: str = "sesn_1", vault: str = "", workspace: str = HOME
) -> AuditEntry:
    return AuditEntry(
        at=NOON + timedelta(seconds=number, microseconds=7),
        kind=Kind.GIT,
        verdict=Outcome.FAILED,
        workspace_id=workspace,
        session_id=session,
        hand_id="hand",
        vault_id=vault,
        credential_id=vault.replace("vlt", "vcrd"),
        method="POST",
        host=f"{number}.example",
        port=8443,
        path="/o/r.git/info/refs",
        reason="because",
    )


async def test_audit_entries_are_read_back_whole_by_each_filter(database: Database) -> None:
    store = SqlAuditStore(database)
    entries = [
        entry(1),
        entry(2, vault="vlt_1"),
        entry(3, "sesn_2", "vlt_1"),
        entry(4, workspace=ELSEWHERE),
    ]
    await store.append([(f"vaud_{number}", one) for number, one in enumerate(entries)])
    found = await store.page(HOME, AuditFilter(), 10)
    assert found == [(f"vaud_{number}", entries[number]) for number in (2, 1, 0)]
    assert await store.page(HOME, AuditFilter(), 1, before="vaud_2") == [("vaud_1", entries[1])]
    for wanted, ids in (
        (AuditFilter(session_id="sesn_1"), ["vaud_1", "vaud_0"]),
        (AuditFilter(vault_id="vlt_1"), ["vaud_2", "vaud_1"]),
        (AuditFilter(credential_id="vcrd_1", session_id="sesn_2"), ["vaud_2"]),
        (AuditFilter(credential_id="vcrd_2"), []),
    ):
        assert [ident for ident, _ in await store.page(HOME, wanted, 10)] == ids


async def test_audit_entries_are_removed_by_age_a_batch_at_a_time(database: Database) -> None:
    store = SqlAuditStore(database)
    await store.append([(f"vaud_{number}", entry(number)) for number in range(5)])
    before = NOON + timedelta(seconds=3)
    assert [await store.forget(before, 2) for _ in range(3)] == [2, 1, 0]
    assert len(await store.page(HOME, AuditFilter(), 10)) == 2


async def test_session_secrets_are_replaced_found_and_forgotten(database: Database) -> None:
    store = SqlSessionSecretStore(database)
    await store.put(secret("sesn_1", "sesrsc_1"), 10)
    await store.put(secret("sesn_1", "sesrsc_1", "b"), 20)
    await store.put(secret("sesn_1", "sesrsc_2"), 20)
    assert await store.get(HOME, "sesn_1", "sesrsc_1") == sealed("b")
    assert await store.get(ELSEWHERE, "sesn_1", "sesrsc_1") is None
    await store.put(replace(secret("sesn_1", "sesrsc_1", "forged"), workspace_id=ELSEWHERE), 0)
    assert await store.get(HOME, "sesn_1", "sesrsc_1") == sealed("b")
    assert await store.due(19, 10) == []
    assert await store.due(20, 10) == [(HOME, "sesn_1")]
    await store.ask_again(HOME, "sesn_1", 30)
    assert await store.due(29, 10) == []
    await store.forget(ELSEWHERE, "sesn_1")
    await store.forget(HOME, "sesn_1", "sesrsc_2")
    assert await store.get(HOME, "sesn_1", "sesrsc_1") is not None
    await store.forget(HOME, "sesn_1")
    assert await store.get(HOME, "sesn_1", "sesrsc_1") is None


async def test_of_two_replicas_that_draw_an_installation_key_both_have_one(
    databases: list[Database],
) -> None:
    drawn = [WrappedKey("file:1", bytes([number]) * 60) for number in range(len(databases))]
    stores = [SqlWrappedKeys(database) for database in databases]
    assert await stores[0].load() is None
    kept = await asyncio.gather(
        *(store.keep(key) for store, key in zip(stores, drawn, strict=True))
    )
    assert kept[0] == kept[1]
    assert kept[0] in drawn
    assert await stores[0].load() == kept[0]


async def test_every_wrapped_key_is_found_and_replaced_where_it_is_still_the_same(
    database: Database,
) -> None:
    keys, secrets = SqlWrappedKeys(database), SqlSessionSecretStore(database)
    vaults = SqlVaultStore(database, SystemClock())
    credentials = SqlCredentialStore(database, SystemClock())
    await keys.keep(WrappedKey("file:1", b"installation"))
    await secrets.put(secret("sesn_1", "sesrsc_1", "s"), 0)
    await secrets.put(secret("sesn_1", "sesrsc_2", "new", "file:2"), 0)
    vault, made = Vault(id="vlt_1"), Credential(id="vcrd_1", vault_id="vlt_1")
    for message in (vault, made):
        message.created_at.FromDatetime(NOON)
    made.auth.environment_variable.secret_name = "KEY"  # noqa: S105
    await vaults.add(HOME, vault)
    await credentials.add(HOME, made, sealed("c"))
    assert await keys.count("file:2") == (4, 3)
    rows = await keys.some("file:2", 10)
    places = [(row.kind, row.workspace_id, row.owner_id, row.id) for row in rows]
    assert places == [
        ("installation", "", "", "key"),
        ("credential", HOME, "vlt_1", "vcrd_1"),
        ("session_secret", HOME, "sesn_1", "sesrsc_1"),
    ]
    assert [row.key.blob for row in rows] == [b"installation", b"key of c", b"key of s"]
    assert len(await keys.some("file:2", 2)) == 2
    await secrets.put(secret("sesn_1", "sesrsc_1", "written meanwhile"), 0)
    await keys.rewrapped([(row, WrappedKey("file:2", b"anew")) for row in rows])
    assert await keys.count("file:2") == (4, 1)
    assert await secrets.get(HOME, "sesn_1", "sesrsc_1") == sealed("written meanwhile")
    record = await credentials.load(HOME, "vlt_1", "vcrd_1")
    assert record.sealed == Sealed(WrappedKey("file:2", b"anew"), b"c")
