from __future__ import annotations

import asyncio

import pytest

from chassis.errors import DroverError, Reason
from storage.health import follow


class FadingDatabase:
    """A database that answers, or does not, as the test says."""

    def __init__(self):
        self.failure = None
        self.asked = asyncio.Semaphore(0)

    async def read(self, _fn):
        self.asked.release()
        if self.failure is not None:
            raise self.failure

    async def asked_anew(self):
        """Returns when it was asked twice more: the answer to the first has been reported then."""
        for _ in range(2 + self.asked._value):
            async with asyncio.timeout(30):
                await self.asked.acquire()


class Reports(list):
    async def report(self, *, serving):
        self.append(serving)


@pytest.mark.parametrize("failure", [DroverError(Reason.UNAVAILABLE, "gone"), TimeoutError()])
async def test_service_serves_as_long_as_its_database_does(failure):
    database, reports = FadingDatabase(), Reports()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(database, reports, every_seconds=0))
        await database.asked_anew()
        assert reports == []
        database.failure = failure
        await database.asked_anew()
        assert reports == [False]
        database.failure = None
        await database.asked_anew()
        assert reports == [False, True]
        following.cancel()
