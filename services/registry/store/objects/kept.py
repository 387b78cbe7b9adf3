"""Objects that rows refer to: no row is ever without its bytes, no bytes stay without a row.

An object's name is written down before its bytes are stored, and counted once they are, in the
transaction of the row that refers to it. Whatever dies in between leaves an object that is written
down, counts for nothing, and is deleted when its time is over.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
from sqlalchemy import delete, insert, select, update

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from services.registry.store.objects.tables import OBJECTS
from storage.objects import ObjectGone, ObjectsAway

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from sqlalchemy import Connection

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from storage import Database
    from storage.objects import Objects

STORING: Final = timedelta(hours=24)
"""How long storing an object may take. After that it is taken to have died."""
SETTLING: Final = timedelta(minutes=2)
"""How long after its upload broke off an object may come to be: a store that has all of a request
goes on with it, though its client is gone.
"""
SWEEP_SECONDS: Final = 30.0

_MESSAGE: Final = 256 * 1024  # what gRPC holds of a reading is a few of these
_AT_ONCE: Final = 100
_MOST_FAILURES: Final = 3
_AWAY_SECONDS: Final = 5.0

_O = OBJECTS.c
_log = structlog.get_logger("registry.objects")


class KeptObjects:
    """The objects of one registry.

        async with objects.stored("skills", pieces) as name:
            await database.write(...)  # which does `hold(connection, name)`, then inserts its row

    `ids` gives the last part of a name, which is for ever of that object alone.
    """

    def __init__(self, objects: Objects, database: Database, clock: Clock, ids: IdSource) -> None:
        self._objects = objects
        self._database = database
        self._clock = clock
        self._ids = ids
        self._abandoned: set[str] = set()
        self._reading: Counter[str] = Counter()
        self._awake = asyncio.Event()

    @asynccontextmanager
    async def stored(self, kind: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
        """Stores an object of a `kind`, durably, and gives its name to the body, which counts it.

        When the body, or `pieces`, raises, the object is deleted unless it was counted all the
        same. A body that finds that it needs it not says so with `abandon`. Raises what `pieces`
        does, and UNAVAILABLE while the store or the database is away.
        """
        made = self._ids("obj")
        name = f"{kind}/{made[-2:]}/{made}"
        await self._database.write(partial(self._note, name))
        failed: list[Exception] = []

        async def noted() -> AsyncIterator[bytes]:
            try:
                async for piece in pieces:
                    yield piece
            except Exception as error:
                failed.append(error)
                raise

        try:
            try:
                await self._objects.put(name, noted())
            except ObjectsAway as error:
                if failed:
                    raise failed[0] from None
                _refuse(error)
            yield name
        except BaseException:
            self.abandon(name)
            raise

    def abandon(self, name: str) -> None:
        """Has an object deleted that no row was made for. Returns at once."""
        self._abandoned.add(name)
        self._awake.set()

    def wake(self) -> None:
        """There may be objects to delete."""
        self._awake.set()

    async def read(self, name: str, size: int, sha256: str) -> AsyncGenerator[bytes, None]:
        """An object of `size` bytes, in pieces of at most 256 KiB. It stays until it was read.

        Raises UNAVAILABLE while the store is away, and INTERNAL for what is not there as a whole,
        or is not what was stored: behind its last piece, if by nothing but the digest.
        """
        self._reading[name] += 1
        left, digest = size, hashlib.sha256()
        try:
            async with aclosing(self._objects.read(name, size)) as pieces:
                async for piece in pieces:
                    left -= len(piece)
                    digest.update(piece)
                    view = memoryview(piece)
                    for start in range(0, len(piece), _MESSAGE):
                        yield bytes(view[start : start + _MESSAGE])
        except ObjectGone:
            left = size
        except ObjectsAway as error:
            _refuse(error)
        finally:
            self._reading[name] -= 1
            if not self._reading[name]:
                del self._reading[name]
                self._awake.set()
        if left:
            raise _broken("the store has lost bytes", name)
        if digest.hexdigest() != sha256:
            raise _broken("the store has other bytes", name)

    async def run(self) -> None:
        """Deletes what nothing refers to, until it is cancelled."""
        while True:
            try:
                await self.sweep()
            except (DroverError, ObjectsAway) as error:
                _log.warning("objects_not_deleted", reason=str(error))
                await asyncio.sleep(_AWAY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._awake.wait()
            self._awake.clear()

    async def sweep(self) -> None:
        """Deletes all that is to be deleted by now. Raises `DroverError` and `ObjectsAway`.

        One that cannot be deleted keeps no other; after a few the store is taken to be away.
        """
        abandoned = [*self._abandoned]
        if abandoned:
            await self._database.write(partial(self._settle, abandoned))
            self._abandoned.difference_update(abandoned)
        failures: dict[str, ObjectsAway] = {}
        while len(failures) < _MOST_FAILURES:
            left = [*self._reading, *failures]
            doomed = await self._database.write(partial(self._doom, left))
            if not doomed:
                break
            gone: list[str] = []
            for name in doomed:
                try:
                    await self._objects.delete(name)
                except ObjectsAway as error:
                    failures[name] = error
                else:
                    gone.append(name)
            await self._database.write(partial(_forget, gone))
        for failure in failures.values():
            raise failure

    def _note(self, name: str, connection: Connection) -> None:
        until = micros(self._clock.now() + STORING)
        connection.execute(insert(OBJECTS).values(name=name, uses=0, delete_at=until, doomed=False))

    def _settle(self, names: Sequence[str], connection: Connection) -> None:
        connection.execute(
            update(OBJECTS)
            .where(_O.name.in_(names), _O.uses == 0, _O.doomed.is_(False))
            .values(delete_at=micros(self._clock.now() + SETTLING))
        )

    def _doom(self, left: Sequence[str], connection: Connection) -> Sequence[str]:
        """Those to delete now, also of an earlier process that died over it."""
        query = (
            select(_O.name)
            .where(_O.uses == 0, _O.delete_at <= micros(self._clock.now()), _O.name.not_in(left))
            .order_by(_O.delete_at)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True)  # of two replicas that sweep, neither waits
        )
        found = [*connection.execute(query).scalars()]
        if found:
            connection.execute(update(OBJECTS).where(_O.name.in_(found)).values(doomed=True))
        return found


def _forget(names: Sequence[str], connection: Connection) -> None:
    connection.execute(delete(OBJECTS).where(_O.name.in_(names)))


def _broken(what: str, name: str) -> DroverError:
    """INTERNAL for a broken object, whose name is the operator's to know."""
    _log.error("object_broken", object=name, reason=what)
    return DroverError(Reason.INTERNAL, f"{what} of what was asked for")


def _refuse(error: ObjectsAway) -> NoReturn:
    _log.warning("objects_away", reason=str(error))
    raise DroverError(
        Reason.UNAVAILABLE, f"the store of files cannot be used: {error}", retry_after=1.0
    ) from None
