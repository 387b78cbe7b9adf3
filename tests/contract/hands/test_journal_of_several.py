"""What a journal promises when several processes write it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from services.hands.domain import execution
from services.hands.domain.execution import Begun, Step
from services.hands.domain.journal import Journal
from services.hands.store.journal import SqlJournal
from services.hands.store.schema import SCHEMA
from tests.doubles.databases import opened
from tests.doubles.hands_journal import MemoryJournal

RESULT = execution.ran((), timedelta(seconds=1), is_error=False, cancelled=False)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journals(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Journal]]:
    """One journal as two processes have it."""
    if request.param == "memory":
        yield [MemoryJournal()] * 2
        return
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster, processes=2) as databases:
        yield [SqlJournal(database, SystemClock()) for database in databases]


async def test_call_that_all_begin_at_once_runs_once(journals: list[Journal]) -> None:
    begun = await asyncio.gather(*[one.begin("s", "c", 1, "bash") for one in journals * 10])
    assert [one.step for one in begun].count(Step.RUN) == 1


async def test_fence_that_all_raise_at_once_ends_at_the_highest(journals: list[Journal]) -> None:
    rising = [one.fence("s", number) for number in range(1, 21) for one in journals]
    outcomes = await asyncio.gather(*rising, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, DroverError)]
    assert {one.reason for one in refused} <= {Reason.LEASE_LOST}
    for one in journals:
        with pytest.raises(DroverError):
            await one.fence("s", 19)
        await one.fence("s", 20)


async def test_what_is_told_of_a_call_is_what_the_journal_keeps(journals: list[Journal]) -> None:
    """A result that comes while the next brain asks is told, or has come too late for good."""
    writer, asker = journals
    for number in range(20):
        call = f"c{number}"
        await writer.begin("s", call, 1, "bash")
        asked, _ = await asyncio.gather(
            asker.begin("s", call, 1, "bash"), writer.finish("s", call, RESULT)
        )
        kept: Begun = await writer.begin("s", call, 1, "bash")
        assert asked.record.result == kept.record.result


async def test_calls_that_are_cancelled_and_begun_at_once_do_one_of_both(
    journals: list[Journal],
) -> None:
    canceller, beginner = journals
    for number in range(20):
        call = f"c{number}"
        _, begun = await asyncio.gather(
            canceller.cancel("s", 1, [call]), beginner.begin("s", call, 1, "bash")
        )
        again = await canceller.begin("s", call, 1, "bash")
        if begun.step is Step.ANSWER:
            assert again.record.result == begun.record.result
        else:
            assert again.record.starts == 1
