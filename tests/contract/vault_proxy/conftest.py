"""Every store of vaults, by its port: the suite runs once per implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from chassis.clock import SystemClock
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.vaults import SqlVaultStore
from tests.doubles.databases import be_patient, opened
from tests.doubles.vault_store import MemoryCredentialStore, MemoryVaults, MemoryVaultStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from services.vault_proxy.domain.vault_ports import CredentialStore, VaultStore
    from storage import Database


class Stores(NamedTuple):
    """Both stores, as one process has them."""

    vaults: VaultStore
    credentials: CredentialStore


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def databases(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[list[Database]]:
    """One database as two processes have it; none for the stores in memory."""
    if request.param == "memory":
        yield []
        return
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster, processes=2) as databases:
        yield databases


@pytest.fixture
def all_stores(databases: list[Database]) -> list[Stores]:
    """Every process's stores of one vault proxy."""
    clock = SystemClock()
    if not databases:
        shared = MemoryVaults(clock)
        return [Stores(MemoryVaultStore(shared), MemoryCredentialStore(shared))]
    return [Stores(SqlVaultStore(one, clock), SqlCredentialStore(one, clock)) for one in databases]


@pytest.fixture
def stores(all_stores: list[Stores]) -> Stores:
    return all_stores[0]
