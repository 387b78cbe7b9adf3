from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest

from services.vault_proxy.domain.grant_ports import StoredAuthority
from services.vault_proxy.store.grants import SqlAuthorities, SqlRevocations
from tests.doubles.grants import MemoryAuthorities, MemoryRevocations

if TYPE_CHECKING:
    from services.vault_proxy.domain.grant_ports import AuthorityStore, Revocations
    from storage import Database

_THEN = datetime(2026, 1, 1, tzinfo=UTC)


class Stores(NamedTuple):
    authorities: AuthorityStore
    revocations: Revocations


@pytest.fixture
def both(databases: list[Database]) -> list[Stores]:
    """The stores of two processes."""
    if not databases:
        authorities = MemoryAuthorities()
        return [Stores(authorities, MemoryRevocations(authorities))] * 2
    return [Stores(SqlAuthorities(one), SqlRevocations(one)) for one in databases]


def _authority(session_id: str, certificate: bytes = b"certificate") -> StoredAuthority:
    return StoredAuthority("wrkspc_1", session_id, certificate, b"\0sealed\xff", _THEN)


async def test_an_authority_is_read_as_it_was_kept_by_its_workspace_alone(
    both: list[Stores],
) -> None:
    made = _authority("sesn_1")
    assert await both[0].authorities.load("wrkspc_1", "sesn_1") is None
    assert await both[0].authorities.keep(made) == made
    assert await both[1].authorities.load("wrkspc_1", "sesn_1") == made
    assert await both[1].authorities.load("wrkspc_2", "sesn_1") is None


async def test_of_authorities_that_are_made_at_once_all_are_given_one(both: list[Stores]) -> None:
    kept = await asyncio.gather(
        *(
            both[number % 2].authorities.keep(_authority("sesn_1", b"%d" % number))
            for number in range(8)
        )
    )
    assert len({one.certificate for one in kept}) == 1


async def test_sessions_that_were_not_asked_for_are_due_until_they_are(both: list[Stores]) -> None:
    store = both[0].authorities
    for name in ("sesn_1", "sesn_2", "sesn_3"):
        await store.keep(_authority(name))
    assert await store.due(_THEN - timedelta(seconds=1), 10) == []
    assert len(await store.due(_THEN, 2)) == 2
    await store.asked("sesn_1", _THEN + timedelta(days=1))
    await store.forget("wrkspc_1", "sesn_2")
    assert await store.due(_THEN, 10) == [("wrkspc_1", "sesn_3")]
    assert await both[1].authorities.load("wrkspc_1", "sesn_2") is None


async def test_a_revocation_holds_for_every_process_and_only_ever_reaches_further(
    both: list[Stores],
) -> None:
    assert await both[0].revocations.revoked("sesn_1") == 0
    await both[0].revocations.revoke("wrkspc_1", "sesn_1", 2_000_000_000_000_000)
    await both[1].revocations.revoke("wrkspc_1", "sesn_1", 1_000_000_000_000_000)
    assert await both[1].revocations.revoked("sesn_1") == 2_000_000_000_000_000
    assert await both[1].revocations.revoked("sesn_2") == 0


async def test_what_a_workspace_takes_back_is_its_own(both: list[Stores]) -> None:
    await both[0].authorities.keep(_authority("sesn_1"))
    await both[1].revocations.revoke("wrkspc_2", "sesn_1", 10)
    assert await both[0].revocations.revoked("sesn_1") == 0
    await both[1].revocations.revoke("wrkspc_1", "sesn_1", 10)
    await both[1].revocations.revoke("wrkspc_2", "sesn_1", 20)
    assert await both[0].revocations.revoked("sesn_1") == 10


async def test_revocations_that_no_grant_outlives_are_forgotten(both: list[Stores]) -> None:
    store = both[0].revocations
    await store.revoke("wrkspc_1", "sesn_1", 10)
    await store.revoke("wrkspc_1", "sesn_2", 20)
    await store.forget(20)
    assert await store.revoked("sesn_1") == 0
    assert await store.revoked("sesn_2") == 20
