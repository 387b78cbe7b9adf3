from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.doubles.session_world import ManualClock
from tests.doubles.vault import HOME, VaultDouble, bearer, variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.vault_proxy.domain.vault_ports import Record


@pytest.fixture
async def vault() -> VaultDouble:
    vault = VaultDouble(clock=ManualClock())
    for vault_id in ("vlt_1", "vlt_2"):
        await vault.new_vault(vault_id)
    return vault


async def values(vault: VaultDouble, *vault_ids: str, workspace: str = HOME) -> dict[str, str]:
    found = await vault.holdings.environment_credentials(workspace, vault_ids)
    return {credential.name: credential.value.open() for credential in found}


async def test_of_two_with_one_name_that_of_the_first_vault_counts(vault: VaultDouble) -> None:
    await vault.add("vlt_1", **variable("KEY", "one"))
    await vault.add("vlt_2", **variable("KEY", "two"))
    await vault.add("vlt_2", **variable("OTHER", "three"))
    assert await values(vault, "vlt_1", "vlt_2") == {"KEY": "one", "OTHER": "three"}
    assert await values(vault, "vlt_2", "vlt_1") == {"KEY": "two", "OTHER": "three"}
    assert await values(vault) == {}
    assert await values(vault, "vlt_1", workspace="wrkspc_other") == {}


async def test_credential_says_where_it_may_go(vault: VaultDouble) -> None:
    await vault.add("vlt_1", **variable("A", "a", "*.Example.com", "192.0.2.1"))
    await vault.add("vlt_1", **variable("B", "b"))
    await vault.add("vlt_1", **bearer("t"))
    a, b = await vault.holdings.environment_credentials(HOME, ["vlt_1"])
    assert (a.allowed_hosts, b.allowed_hosts) == (("*.example.com", "192.0.2.1"), None)
    assert (a.in_header, a.in_body) == (True, True)


async def test_every_change_by_this_process_counts_at_once(vault: VaultDouble) -> None:
    made = await vault.add("vlt_1", **variable("KEY", "one"))
    assert await values(vault, "vlt_1") == {"KEY": "one"}
    revision = vault.holdings.revision()
    await vault.change(made, auth={"environment_variable": {"secret_value": "two"}})
    assert vault.holdings.revision() > revision
    assert await values(vault, "vlt_1") == {"KEY": "two"}
    await vault.archive(made)
    assert await values(vault, "vlt_1") == {}


async def test_change_of_hosts_alone_keeps_the_value(vault: VaultDouble) -> None:
    made = await vault.add("vlt_1", **variable("KEY", "one", "a.example"))
    networking = {"limited": {"allowed_hosts": ["b.example"]}}
    await vault.change(made, auth={"environment_variable": {"networking": networking}})
    (found,) = await vault.holdings.environment_credentials(HOME, ["vlt_1"])
    assert (found.value.open(), found.allowed_hosts) == ("one", ("b.example",))


async def test_change_by_another_replica_counts_within_a_second(vault: VaultDouble) -> None:
    made = await vault.add("vlt_1", **variable("KEY", "one"))
    other = VaultDouble(vault.keys, vault.clock, vault.store, vault.vault_store)
    assert await values(other, "vlt_1") == {"KEY": "one"}
    await vault.change(made, auth={"environment_variable": {"secret_value": "two"}})
    assert isinstance(vault.clock, ManualClock)
    vault.clock.move(1)
    assert await values(other, "vlt_1") == {"KEY": "two"}


async def test_many_who_ask_at_once_ask_the_database_once(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.add("vlt_1", **variable("KEY", "one"))
    asked: list[Sequence[str]] = []
    live = vault.store.live

    async def counted(workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        asked.append(vault_ids)
        await asyncio.sleep(0)
        return await live(workspace_id, vault_ids)

    monkeypatch.setattr(vault.store, "live", counted)
    await asyncio.gather(*(values(vault, "vlt_1") for _ in range(50)))
    assert len(asked) == 1
    assert isinstance(vault.clock, ManualClock)
    vault.clock.move(1)
    await values(vault, "vlt_1")
    assert len(asked) == 1  # the counter says that nothing has changed


async def test_change_while_records_are_read_makes_them_stale(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await vault.add("vlt_1", **variable("KEY", "one"))
    live = vault.store.live

    async def overtaken(workspace_id: str, vault_ids: Sequence[str]) -> Sequence[Record]:
        found = await live(workspace_id, vault_ids)
        monkeypatch.setattr(vault.store, "live", live)
        await vault.change(made, auth={"environment_variable": {"secret_value": "two"}})
        return found

    monkeypatch.setattr(vault.store, "live", overtaken)
    await values(vault, "vlt_1")
    assert await values(vault, "vlt_1") == {"KEY": "two"}
