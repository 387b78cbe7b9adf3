from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from services.vault_proxy.domain.audit import AuditEntry, Kind, Outcome
from services.vault_proxy.domain.audit_ports import AuditFilter
from services.vault_proxy.store.audit import SqlAuditStore
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.vault.trail import AuditTrail
from tests.doubles.databases import migrated
from tests.doubles.session_world import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

HOME = "wrkspc_home"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def entry(number: int, **more: object) -> AuditEntry:
    fields: dict[str, object] = {"session_id": "sesn_1", "workspace_id": HOME} | more
    return AuditEntry(
        at=NOON + timedelta(seconds=number),
        kind=Kind.EGRESS,
        verdict=Outcome.DENIED,
        method="GET",
        host=f"{number}.example",
        port=443,
        path="/",
        reason="host_not_allowed",
        **fields,  # type: ignore[arg-type]
    )


class Gate:
    """An audit store that takes entries only while it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.batches: list[list[AuditEntry]] = []
        self.failures = 0

    async def append(self, entries: Sequence[tuple[str, AuditEntry]]) -> None:
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            raise DroverError(Reason.UNAVAILABLE, "away") if self.failures else OSError
        self.batches.append([entry for _, entry in entries])

    async def page(self, *_: object) -> Sequence[tuple[str, AuditEntry]]:
        raise NotImplementedError

    async def forget(self, *_: object) -> int:
        raise NotImplementedError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlAuditStore]:
    async with migrated(f"sqlite:///{tmp_path / 'vault_proxy.db'}", SCHEMA) as database:
        yield SqlAuditStore(database)


async def hosts(store: SqlAuditStore, wanted: AuditFilter, limit: int = 100) -> list[str]:
    return [entry.host for _, entry in await store.page(HOME, wanted, limit)]


async def test_entries_are_read_back_whole_and_newest_first(store: SqlAuditStore) -> None:
    async with AuditTrail(store, new_id, ManualClock()) as trail:
        for number in range(3):
            await trail.record(entry(number, credential_id="vcrd_1", vault_id="vlt_1"))
        await trail.flush()
        found = await store.page(HOME, AuditFilter(), 2)
        assert [one for _, one in found] == [
            entry(number, credential_id="vcrd_1", vault_id="vlt_1") for number in (2, 1)
        ]
        (last,) = await store.page(HOME, AuditFilter(), 2, before=found[-1][0])
        assert last[1].host == "0.example"


async def test_entries_are_found_by_session_vault_and_credential(store: SqlAuditStore) -> None:
    async with AuditTrail(store, new_id, ManualClock()) as trail:
        await trail.record(entry(1))
        await trail.record(entry(2, session_id="sesn_2", vault_id="vlt_1", credential_id="vcrd_1"))
        await trail.record(entry(3, session_id="sesn_2", vault_id="vlt_1", credential_id="vcrd_2"))
        await trail.record(entry(4, workspace_id="wrkspc_other", vault_id="vlt_1"))
    assert await hosts(store, AuditFilter(session_id="sesn_1")) == ["1.example"]
    assert await hosts(store, AuditFilter(vault_id="vlt_1")) == ["3.example", "2.example"]
    assert await hosts(store, AuditFilter(credential_id="vcrd_1")) == ["2.example"]
    assert await hosts(store, AuditFilter("sesn_1", "vlt_1")) == []


async def test_what_is_queued_is_written_before_the_process_ends() -> None:
    gate = Gate()
    gate.open.set()
    async with AuditTrail(gate, new_id, ManualClock()) as trail:
        for number in range(100):
            await trail.record(entry(number))
    assert sum(map(len, gate.batches)) == 100
    assert len(gate.batches) <= 2


async def test_who_decides_waits_while_too_much_is_queued_and_nothing_is_lost() -> None:
    gate = Gate()
    async with AuditTrail(gate, new_id, ManualClock(), most=2) as trail:
        for number in range(2):
            await trail.record(entry(number))
        flushed = asyncio.create_task(trail.flush())
        await asyncio.sleep(0)
        more = [asyncio.create_task(trail.record(entry(2 + number))) for number in range(4)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not all(one.done() for one in more)
        gate.open.set()
        await flushed
        await asyncio.gather(*more)
    assert sorted(one.host for batch in gate.batches for one in batch) == [
        f"{number}.example" for number in range(6)
    ]


async def test_many_who_decide_pass_through_a_small_queue() -> None:
    gate = Gate()
    gate.open.set()
    async with AuditTrail(gate, new_id, ManualClock(), most=1) as trail:
        async with asyncio.timeout(20):
            deciding = asyncio.gather(*(trail.record(entry(number)) for number in range(50)))
            while not deciding.done():
                await trail.flush()
                await asyncio.sleep(0)
            await deciding
    assert sum(map(len, gate.batches)) == 50


async def test_entries_wait_for_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.vault_proxy.vault.trail._RETRY_SECONDS", 0.0)
    gate = Gate()
    gate.open.set()
    gate.failures = 2
    async with AuditTrail(gate, new_id, ManualClock()) as trail:
        await trail.record(entry(1))
        await trail.record(entry(2))
        await trail.flush()
        assert [[one.host for one in batch] for batch in gate.batches] == [
            ["1.example", "2.example"]
        ]


async def test_old_entries_are_forgotten(store: SqlAuditStore) -> None:
    await store.append([(f"vaud_{number}", entry(number)) for number in range(10)])
    assert await store.forget(NOON + timedelta(seconds=6), 4) == 4
    assert await store.forget(NOON + timedelta(seconds=6), 4) == 2
    assert len(await hosts(store, AuditFilter())) == 4
