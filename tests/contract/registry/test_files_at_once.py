"""Files under everything at once, from two processes: bytes, uses and quota agree in the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select

from chassis.errors import DroverError
from chassis.ids import new_id
from services.registry.domain.files.file import Limits
from services.registry.domain.files.ports import Copy
from services.registry.store.files.tables import FILE_USAGE, FILES
from services.registry.store.objects.kept import SETTLING
from services.registry.store.objects.tables import OBJECTS
from tests.contract.registry.files import HOME, Cabinet

if TYPE_CHECKING:
    from storage import Database

SESSIONS, QUOTA = ("sesn_1", "sesn_2"), 300


async def act(cabinet: Cabinet, dice: random.Random, known: list[str]) -> None:
    """Does something to files, which may be refused."""
    files, session, now = cabinet.files, dice.choice(SESSIONS), cabinet.clock.now()
    one = dice.choice(known) if known else "file_none"
    content = bytes([dice.randrange(4)]) * dice.randrange(20)
    match dice.randrange(8):
        case 0 | 1:
            expiry = dice.choice([None, timedelta(hours=1)])
            known.append((await cabinet.add(content, expires_after=expiry)).id)
        case 2 | 3:
            known.append((await cabinet.made(content, dice.choice("ab"), session)).id)
        case 4:
            copies = [Copy(one, new_id("file")) for _ in range(2)]
            known.extend(file.id for file in await files.copy(HOME, session, copies, now))
        case 5:
            await files.delete(HOME, one)
        case 6:
            await files.end_session(HOME, session, now)
            await files.reopen_session(HOME, session)
        case _:
            cabinet.clock.at += timedelta(minutes=dice.randrange(30))
            await cabinet.sweep()


async def test_bytes_uses_and_quota_agree_whatever_happens_at_once(
    emptied: list[Database],
) -> None:
    cabinet = Cabinet(emptied[0], Limits(20, QUOTA))
    both = [cabinet, cabinet.beside(emptied[1])]
    known: list[str] = []

    async def work(number: int) -> None:
        dice = random.Random(number)  # noqa: S311
        for _ in range(25):
            with suppress(DroverError):
                await act(both[number % 2], dice, known)

    await asyncio.gather(*map(work, range(6)))
    for wait in (timedelta(), SETTLING):  # for what was not needed after all
        cabinet.clock.at += wait
        for one in both:
            await one.sweep()

    rows = await emptied[0].read(lambda connection: connection.execute(select(FILES)).all())
    objects = await emptied[0].read(lambda connection: connection.execute(select(OBJECTS)).all())
    used = await emptied[0].read(lambda connection: connection.scalar(select(FILE_USAGE.c.used)))
    assert {one.name: one.uses for one in objects} == Counter(
        row.object for row in rows if row.object is not None
    )
    assert cabinet.bytes.objects.keys() == {one.name for one in objects}
    assert used == sum(row.size for row in rows if row.counted)
    assert used <= QUOTA
    for row in rows:
        if row.object is not None:
            assert len(await cabinet.read(row.id)) == row.size
