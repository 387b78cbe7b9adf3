from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.vault.session_secrets import KeptSessionSecrets
from tests.doubles.databases import migrated
from tests.doubles.session_world import ManualClock
from tests.doubles.vault import HOME, VaultDouble

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HOUR = 3600


class Sessions:
    """SessionService, as far as it knows sessions."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.archived: set[str] = set()
        self.asked: list[str] = []

    async def get(self, workspace_id: str, session_id: str) -> Session:
        assert workspace_id == HOME
        self.asked.append(session_id)
        if session_id not in self.known:
            raise DroverError(Reason.NOT_FOUND, "no session")
        session = Session(id=session_id)
        if session_id in self.archived:
            session.archived_at.SetInParent()
        return session


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def kept(tmp_path: Path, clock: ManualClock) -> AsyncIterator[KeptSessionSecrets]:
    async with migrated(f"sqlite:///{tmp_path / 'vault_proxy.db'}", SCHEMA) as database:
        envelopes = VaultDouble(clock=clock).envelopes
        yield KeptSessionSecrets(SqlSessionSecretStore(database), envelopes, clock)


async def value(kept: KeptSessionSecrets, session: str = "sesn_1", workspace: str = HOME) -> str:
    found = await kept.of(workspace, session, "sesrsc_1")
    return "" if found is None else found.open()


async def test_secret_is_its_sessions_and_its_workspaces(kept: KeptSessionSecrets) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_one")
    assert await value(kept) == "ghp_one"
    assert await value(kept, "sesn_2") == ""
    assert await value(kept, workspace="wrkspc_other") == ""


async def test_later_secret_takes_the_place_of_an_earlier_one(kept: KeptSessionSecrets) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_one")
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_two")
    assert await value(kept) == "ghp_two"


async def test_one_resources_secret_is_forgotten_or_all(kept: KeptSessionSecrets) -> None:
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_one")
    await kept.put(HOME, "sesn_1", "sesrsc_2", "ghp_two")
    await kept.forget(HOME, "sesn_1", "sesrsc_2")
    assert await kept.of(HOME, "sesn_1", "sesrsc_2") is None
    assert await value(kept) == "ghp_one"
    await kept.forget(HOME, "sesn_1")
    assert await value(kept) == ""


async def test_secret_that_was_written_while_its_session_was_archived_is_removed(
    kept: KeptSessionSecrets, clock: ManualClock
) -> None:
    sessions = Sessions("sesn_1", "sesn_2")
    sessions.archived.add("sesn_1")
    for session in ("sesn_1", "sesn_2"):
        await kept.put(HOME, session, "sesrsc_1", "ghp_one")
    clock.move(HOUR + 1)
    assert await kept.sweep_some(sessions) == 2
    assert (await value(kept, "sesn_1"), await value(kept, "sesn_2")) == ("", "ghp_one")


async def test_secrets_of_a_session_that_never_came_to_be_are_removed_after_an_hour(
    kept: KeptSessionSecrets, clock: ManualClock
) -> None:
    sessions = Sessions("sesn_1")
    for session in ("sesn_1", "sesn_2"):
        await kept.put(HOME, session, "sesrsc_1", "ghp_one")
    clock.move(HOUR - 1)
    assert await kept.sweep_some(sessions) == 0
    clock.move(2)
    assert await kept.sweep_some(sessions) == 2
    assert (await value(kept, "sesn_1"), await value(kept, "sesn_2")) == ("ghp_one", "")
    assert await kept.sweep_some(sessions) == 0
    sessions.known.clear()  # deleted, and nobody said so
    clock.move(24 * HOUR)
    assert await kept.sweep_some(sessions) == 1
    assert await value(kept, "sesn_1") == ""


async def test_nothing_is_removed_while_nobody_can_be_asked(
    kept: KeptSessionSecrets, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions()
    await kept.put(HOME, "sesn_1", "sesrsc_1", "ghp_one")
    clock.move(2 * HOUR)

    async def away(*_: str) -> Session:
        raise DroverError(Reason.UNAVAILABLE, "away")

    monkeypatch.setattr(sessions, "get", away)
    assert await kept.sweep_some(sessions) == 0
    assert await value(kept) == "ghp_one"


async def test_session_that_cannot_be_asked_for_keeps_no_other_waiting(
    kept: KeptSessionSecrets, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions()
    names = [f"sesn_{number}" for number in range(102)]
    for name in names:
        await kept.put(HOME, name, "sesrsc_1", "ghp_one")
        clock.move(0.001)
    clock.move(2 * HOUR)
    answer, broken = sessions.get, {names[0], names[50]}

    async def get(workspace_id: str, session_id: str) -> Session:
        if session_id in broken:
            raise DroverError(Reason.INTERNAL, "it is broken")
        return await answer(workspace_id, session_id)

    monkeypatch.setattr(sessions, "get", get)
    assert await kept.sweep_some(sessions) == 100
    assert sessions.asked == [name for name in names[:100] if name not in broken]
    assert await kept.sweep_some(sessions) == 2
    assert await kept.sweep_some(sessions) == 0
    assert await value(kept, names[50]) == "ghp_one"
    broken.clear()
    clock.move(301)
    assert await kept.sweep_some(sessions) == 2
    assert await value(kept, names[50]) == ""
