"""Tokens of sessions' repositories: kept before the session is, and gone with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.crypto.envelope import Envelopes
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.vault.session_secrets import KeptSessionSecrets
from storage import open_database
from tests.doubles.vault import HOME, keyring

CANARY = "ghp_canary-3kX9"
HOUR = timedelta(hours=1)


class ManualClock:
    def __init__(self) -> None:
        self.time = datetime(2026, 11, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


class Sessions:
    """The session service: knows these, or is away."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.away = False

    async def get(self, workspace_id: str, session_id: str) -> Session:
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, "away")
        if workspace_id != HOME or session_id not in self.known:
            raise DroverError(Reason.NOT_FOUND, "not found")
        return Session(id=session_id)


class Kept(KeptSessionSecrets):
    """With the clock and the place that tests look at."""

    clock: ManualClock
    place: Path

    async def all(self, *session_ids: str, resource_id: str = "sesrsc_1") -> list[str | None]:
        found = [await self.of(HOME, one, resource_id) for one in session_ids]
        return [one and one.open() for one in found]


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    database = await open_database(f"sqlite:///{tmp_path}/vault_proxy.db", SCHEMA)
    clock = ManualClock()
    made = Kept(SqlSessionSecretStore(database), Envelopes(keyring(), clock, 300.0), clock)
    made.clock, made.place = clock, tmp_path
    yield made
    await database.close()


async def test_a_secret_opens_for_its_own_session_and_resource_alone(kept: Kept) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", CANARY)
    assert await kept.all("sesn_1", "sesn_2") == [CANARY, None]
    assert await kept.all("sesn_1", resource_id="sesrsc_2") == [None]
    assert await kept.of("wrkspc_other", "sesn_1", "sesrsc_1") is None
    for path in kept.place.iterdir():
        assert CANARY.encode() not in path.read_bytes()


async def test_a_newer_secret_takes_the_place_of_the_older_at_once(kept: Kept) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", CANARY)
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_newer")
    assert await kept.all("sesn_1") == ["ghp_newer"]


async def test_a_copy_is_sealed_for_its_own_session_and_outlives_the_other(kept: Kept) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", CANARY)
    await kept.copy(HOME, "sesn_1", "sesn_2", ["sesrsc_1", "sesrsc_none"])
    await kept.copy("wrkspc_other", "sesn_1", "sesn_3", ["sesrsc_1"])
    await kept.forget(HOME, "sesn_1")
    assert await kept.all("sesn_1", "sesn_2", "sesn_3") == [None, CANARY, None]
    assert await kept.of("wrkspc_other", "sesn_3", "sesrsc_1") is None


async def test_nobody_else_forgets_a_workspaces_secrets(kept: Kept) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", CANARY)
    await kept.forget("wrkspc_other", "sesn_1")
    assert await kept.all("sesn_1") == [CANARY]


async def test_secrets_of_a_session_that_never_came_to_be_go_after_an_hour(kept: Kept) -> None:
    sessions = Sessions("sesn_1")
    for session_id in ("sesn_1", "sesn_2"):
        await kept.put(HOME, session_id, "sesrsc_1", CANARY)
    kept.clock.time += HOUR / 2
    assert await kept.sweep_some(sessions) == 0
    kept.clock.time += HOUR
    sessions.away = True
    assert await kept.sweep_some(sessions) == 0
    assert await kept.all("sesn_1", "sesn_2") == [CANARY, CANARY]
    sessions.away = False
    assert await kept.sweep_some(sessions) == 0, "both are postponed"
    kept.clock.time += HOUR / 10
    assert await kept.sweep_some(sessions) == 2
    assert await kept.all("sesn_1", "sesn_2") == [CANARY, None]
    assert await kept.sweep_some(sessions) == 0, "not asked for again before a day is over"
