"""Files in SQL, their bytes in a store of objects."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.file.v1.file_pb2 import File
from services.registry.domain.files import file as files
from services.registry.domain.files.ports import Opened
from services.registry.store.files import rows, usage
from services.registry.store.files.measure import Measure
from services.registry.store.files.tables import ENDED_SESSIONS, FILES
from services.registry.store.newest import newest
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.registry.domain.files.file import Limits, Upload
    from services.registry.domain.files.ports import Copy
    from services.registry.domain.ports import Listing
    from services.registry.store.files.rows import Found
    from services.registry.store.objects.kept import KeptObjects
    from storage import Database

_KIND = "files"
_F = FILES.c
_E = ENDED_SESSIONS.c


class SqlFileStore:
    """Implements `FileStore`. The row of a workspace's usage is the fence of all writes."""

    def __init__(
        self,
        database: Database,
        objects: KeptObjects,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
    ) -> None:
        self._database = database
        self._objects = objects
        self._answers = Answers(database, clock)
        self._clock = clock
        self._ids = ids
        self._most = limits.file_bytes
        self._quota = limits.workspace_bytes
        self._all_downloadable = limits.downloadable_uploads

    async def add(
        self,
        workspace_id: str,
        upload: Upload,
        pieces: AsyncIterator[bytes],
        once: Once[File] | None = None,
    ) -> File:
        """Keeps a new file. Raises as `FileStore`."""
        left = await self._database.read(partial(self._left, workspace_id, upload))
        measure = Measure(
            (self._most, lambda: files.too_large(self._most)),
            (left, lambda: files.quota_exceeded(self._quota)),
        )
        async with self._objects.stored(_KIND, measure.passing(pieces)) as name:
            file = files.new_file(upload, measure.content(), self._ids("file"), self._clock.now())
            keep = partial(self._keep, workspace_id, file, name)
            kept = await self._answers.write(keep, once, file.id)
            if kept.id != file.id:
                self._objects.abandon(name)
        self._objects.wake()  # what it took the place of
        return kept

    def _left(self, workspace_id: str, upload: Upload, connection: Connection) -> int:
        """What a file may have before the workspace has too much. The transaction decides."""
        replaced = rows.made(connection, workspace_id, upload.session_id, upload.filename)
        freed = 0 if replaced is None else replaced.size
        return self._quota - usage.used(connection, workspace_id) + freed

    def _keep(self, workspace_id: str, file: File, name: str, connection: Connection) -> File:
        used, session_id = usage.lock(connection, workspace_id), file.scope.id
        if session_id:
            _refuse_ended(connection, workspace_id, session_id)
            earlier = rows.made(connection, workspace_id, session_id, file.filename)
            if earlier is not None:
                if files.is_same(found := self._file(earlier), file):
                    return found
                used -= earlier.size
                now = micros(file.created_at)
                rows.remove(connection, workspace_id, _F.id == earlier.id, now)
        if used + file.size_bytes > self._quota:
            raise files.quota_exceeded(self._quota)
        rows.add(connection, workspace_id, file, name)
        return self._shown(file, by_session=bool(session_id))

    async def get(self, workspace_id: str, file_id: str) -> File:
        """A file, expired or not. Raises NOT_FOUND."""

        def read(connection: Connection) -> File:
            return self._file(_load(connection, workspace_id, file_id))

        return await self._database.read(read)

    async def open(self, workspace_id: str, file_id: str) -> Opened:
        """A file whose bytes are there. Raises NOT_FOUND, with `file_expired` after its time."""
        now = micros(self._clock.now())

        def read(connection: Connection) -> Opened:
            found = _load(connection, workspace_id, file_id)
            return Opened(self._file(found), _object(found, now))

        return await self._database.read(read)

    async def read(self, workspace_id: str, opened: Opened) -> AsyncGenerator[bytes, None]:
        """The bytes of an opened file. Raises as `FileStore`."""
        file = opened.file
        try:
            async with aclosing(
                self._objects.read(opened.object, file.size_bytes, file.sha256)
            ) as pieces:
                async for piece in pieces:
                    yield piece
        except DroverError as error:
            if error.reason is Reason.INTERNAL:  # it may have been deleted meanwhile
                await self.open(workspace_id, file.id)
            raise

    async def delete(self, workspace_id: str, file_id: str, once: Once[str] | None = None) -> None:
        """Deletes a file; copies stay. Raises NOT_FOUND."""
        now = micros(self._clock.now())

        def write(connection: Connection) -> str:
            usage.lock(connection, workspace_id)
            if not rows.remove(connection, workspace_id, _F.id == file_id, now):
                raise files.no_file(file_id)
            return file_id

        await self._answers.write(write, once)
        self._objects.wake()

    async def page(
        self, workspace_id: str, listing: Listing, session_id: str | None = None
    ) -> Sequence[File]:
        """Files, newest first."""
        query = newest(rows.query(), FILES, workspace_id, listing)
        if session_id is not None:
            query = query.where(_F.session_id == session_id)

        def read(connection: Connection) -> Sequence[File]:
            return [self._file(found) for found in connection.execute(query)]

        return await self._database.read(read)

    async def some(
        self, workspace_id: str, ids: Sequence[str], session_id: str | None = None
    ) -> Sequence[File]:
        """Those of these files that there are, newest first."""
        query = rows.query().where(_F.workspace_id == workspace_id, _F.id.in_(ids))
        if session_id is not None:
            query = query.where(_F.session_id == session_id)
        query = query.order_by(_F.created_at.desc(), _F.id.desc())

        def read(connection: Connection) -> Sequence[File]:
            return [self._file(found) for found in connection.execute(query)]

        return await self._database.read(read)

    async def copy(
        self, workspace_id: str, session_id: str, copies: Sequence[Copy], now: datetime
    ) -> Sequence[File]:
        """Gives a session copies, all or none. Raises as `FileStore`."""

        def write(connection: Connection) -> Sequence[File]:
            usage.lock(connection, workspace_id)
            _refuse_ended(connection, workspace_id, session_id)
            return [
                self._copied(connection, workspace_id, session_id, copy, now) for copy in copies
            ]

        return await self._database.write(write)

    def _copied(
        self,
        connection: Connection,
        workspace_id: str,
        session_id: str,
        copy: Copy,
        now: datetime,
    ) -> File:
        there = connection.execute(
            rows.query().add_columns(_F.workspace_id).where(_F.id == copy.copy_id)
        ).one_or_none()
        if there is not None:
            if (there.workspace_id, there.session_id, there.copy_of) == (
                workspace_id,
                session_id,
                copy.file_id,
            ):
                return self._file(there)
            raise DroverError(Reason.CONFLICT, f"{copy.copy_id!r} is another file")
        source = _load(connection, workspace_id, copy.file_id)
        name = _object(source, micros(now))
        made = files.new_copy(_definition(source), copy.copy_id, session_id, now)
        rows.add(connection, workspace_id, made, name, copy_of=copy.file_id)
        return self._shown(made, by_session=False)

    async def end_session(self, workspace_id: str, session_id: str, now: datetime) -> None:
        """Deletes all files of a session, and keeps from it what comes later."""

        def write(connection: Connection) -> None:
            usage.lock(connection, workspace_id)
            if not _has_ended(connection, workspace_id, session_id):
                connection.execute(
                    insert(ENDED_SESSIONS).values(
                        workspace_id=workspace_id,
                        session_hash=_hash(session_id),
                        ended_at=micros(now),
                    )
                )
            rows.remove(connection, workspace_id, _F.session_id == session_id, micros(now))

        await self._database.write(write)
        self._objects.wake()

    async def reopen_session(self, workspace_id: str, session_id: str) -> None:
        """Keeps nothing from a session any longer that is there again."""
        await self._database.write(
            lambda connection: (
                connection.execute(
                    delete(ENDED_SESSIONS).where(*_named(workspace_id, session_id))
                ).rowcount
            )
        )

    def _file(self, found: Found) -> File:
        return self._shown(
            _definition(found), by_session=bool(found.session_id) and not found.copy_of
        )

    def _shown(self, file: File, *, by_session: bool) -> File:
        file.downloadable = by_session or self._all_downloadable
        return file


def _definition(found: Found) -> File:
    return File.FromString(found.definition)


def _load(connection: Connection, workspace_id: str, file_id: str) -> Found:
    found = rows.find(connection, workspace_id, file_id)
    if found is None:
        raise files.no_file(file_id)
    return found


def _object(found: Found, now: int) -> str:
    name: str | None = found.object
    if name is None or (found.expires_at is not None and found.expires_at <= now):
        raise files.expired(found.id)
    return name


def _refuse_ended(connection: Connection, workspace_id: str, session_id: str) -> None:
    if _has_ended(connection, workspace_id, session_id):
        raise files.session_ended(session_id)


def _has_ended(connection: Connection, workspace_id: str, session_id: str) -> bool:
    ended = select(_E.ended_at).where(*_named(workspace_id, session_id))
    return connection.execute(ended).one_or_none() is not None


def _named(workspace_id: str, session_id: str) -> tuple[ColumnElement[bool], ...]:
    return _E.workspace_id == workspace_id, _E.session_hash == _hash(session_id)


def _hash(session_id: str) -> bytes:
    return sha256(session_id.encode()).digest()
