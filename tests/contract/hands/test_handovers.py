"""What the record of handed over hands promises, over each database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from chassis.context import CallContext, call_context
from chassis.errors import DroverError, Reason
from services.hands.domain.handover import Generations, HandOver
from services.hands.store.handovers import SqlHandOvers
from services.hands.store.journal import SqlJournal
from services.hands.store.schema import SCHEMA
from storage import Database
from tests.doubles.databases import opened

OURS, THEIRS = "wrkspc_ours", "wrkspc_theirs"
GIVEN = HandOver("giver", "build", "receiver", "tools")


@dataclass
class Store:
    database: Database

    def __post_init__(self) -> None:
        self.journal = SqlJournal(self.database, SystemClock())
        self.handovers = SqlHandOvers(self.database, SystemClock())

    async def saw(self, session_id: str, generation: int, workspace_id: str = OURS) -> None:
        """A brain of that workspace has spoken for the session."""
        with call_context(CallContext(workspace_id)):
            await self.journal.fence(session_id, generation)

    async def begin(
        self,
        handover: HandOver = GIVEN,
        giver: int = 1,
        receiver: int = 0,
        workspace_id: str = OURS,
    ) -> None:
        await self.handovers.begin(handover, Generations(giver, receiver), workspace_id)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster) as [database]:
        store = Store(database)
        await store.saw("giver", 1)
        await store.saw("receiver", 3)
        yield store


async def refusal(attempt: object) -> Reason:
    with pytest.raises(DroverError) as refused:
        await attempt  # type: ignore[misc]
    return refused.value.reason


async def test_hand_is_the_receivers_from_the_first_record_on(store: Store) -> None:
    assert await store.handovers.find("giver", "build") is None
    await store.begin()
    assert await store.handovers.find("giver", "build") == GIVEN
    assert list(await store.handovers.unsettled()) == [GIVEN]
    await store.handovers.settle(GIVEN)
    assert not await store.handovers.unsettled()
    assert await store.handovers.find("giver", "build") == GIVEN
    assert await store.handovers.find("giver", "") is None


async def test_both_fences_are_heeded_and_the_givers_goes_up(store: Store) -> None:
    assert await refusal(store.begin(giver=0)) is Reason.LEASE_LOST
    assert await refusal(store.begin(receiver=2)) is Reason.LEASE_LOST
    assert await store.handovers.find("giver", "build") is None
    await store.begin(giver=4, receiver=5)
    assert await refusal(store.saw("giver", 3)) is Reason.LEASE_LOST
    assert await refusal(store.saw("receiver", 4)) is Reason.LEASE_LOST


async def test_giver_that_speaks_for_itself_alone_leaves_the_receivers_fence(store: Store) -> None:
    await store.begin()
    await store.saw("receiver", 3)


async def test_hands_stay_in_their_workspace(store: Store) -> None:
    await store.saw("stranger", 1, THEIRS)
    to_stranger = HandOver("giver", "build", "stranger", "tools")
    assert await refusal(store.begin(to_stranger)) is Reason.NOT_FOUND
    from_stranger = HandOver("stranger", "build", "receiver", "tools")
    assert await refusal(store.begin(from_stranger)) is Reason.NOT_FOUND
    assert await refusal(store.begin(workspace_id=THEIRS)) is Reason.NOT_FOUND
    unseen = HandOver("giver", "build", "unseen", "")
    assert await refusal(store.begin(unseen)) is Reason.NOT_FOUND
    assert not await store.handovers.unsettled()


async def test_session_that_is_gone_gets_nothing(store: Store) -> None:
    with call_context(CallContext(OURS)):
        await store.journal.end("receiver", 3)
    await store.journal.purge("receiver", 3)
    assert await refusal(store.begin()) is Reason.NOT_FOUND


async def test_what_was_given_away_is_not_given_again_until_it_is_back(store: Store) -> None:
    await store.begin()
    await store.begin()  # the very same again is a success
    other = HandOver("giver", "build", "receiver", "more")
    assert await refusal(store.begin(other)) is Reason.ARCHIVED
    back = HandOver("receiver", "tools", "giver", "build")
    await store.begin(back, giver=3)
    assert await store.handovers.find("giver", "build") is None
    assert await store.handovers.find("receiver", "tools") == back
    await store.begin(other)


async def test_repeating_it_takes_nothing_back_from_whom_the_receiver_gave_it_to(
    store: Store,
) -> None:
    await store.saw("third", 1)
    await store.begin()
    await store.handovers.settle(GIVEN)
    on = HandOver("receiver", "tools", "third", "tools")
    await store.begin(on, giver=3)
    await store.begin()
    assert await store.handovers.find("receiver", "tools") == on


async def test_only_one_of_two_receivers_gets_it(store: Store) -> None:
    await store.saw("third", 1)
    other = HandOver("giver", "build", "third", "tools")
    ends = await asyncio.gather(store.begin(), store.begin(other), return_exceptions=True)
    assert sum(isinstance(end, DroverError) for end in ends) == 1
    assert len(await store.handovers.unsettled()) == 1


async def test_session_that_is_gone_has_given_nothing(store: Store) -> None:
    await store.begin()
    await store.begin(HandOver("receiver", "tools", "giver", "other"), giver=3)
    assert await store.handovers.givers() == {"giver", "receiver"}
    await store.handovers.forget("giver")
    assert await store.handovers.givers() == {"receiver"}
    assert await store.handovers.find("giver", "build") is None
    assert await store.handovers.find("receiver", "tools") is not None
