"""Files over a store of objects in memory: what their suites share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chassis.ids import new_id
from services.registry.domain.files.file import Limits, Upload
from services.registry.domain.ports import Listing
from services.registry.store.files.store import SqlFileStore
from services.registry.store.files.sweep import FileSweep
from services.registry.store.objects.kept import KeptObjects
from tests.doubles.objects import MemoryObjects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from drover.file.v1.file_pb2 import File
    from storage import Database

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_other"
ALL = Listing(limit=1000, include_archived=True)


class Clock:
    """One that is moved by hand."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


async def pieces(*given: bytes, fail: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece
    if fail is not None:
        raise fail


@dataclass
class Cabinet:
    """A process's files, the bytes beneath them, and the time."""

    database: Database
    limits: Limits = field(default_factory=lambda: Limits(20, 50))
    clock: Clock = field(default_factory=Clock)
    bytes: MemoryObjects = field(default_factory=MemoryObjects)

    def __post_init__(self) -> None:
        self.objects = KeptObjects(self.bytes, self.database, self.clock, new_id)
        self.files = SqlFileStore(self.database, self.objects, self.clock, new_id, self.limits)

    def beside(self, database: Database) -> Cabinet:
        """Another process's, of the same files."""
        return Cabinet(database, self.limits, self.clock, self.bytes)

    async def add(
        self, content: bytes = b"some bytes", workspace_id: str = HOME, **said: Any
    ) -> File:
        upload = Upload(**{"filename": "a.txt", "mime_type": "text/plain", **said})
        return await self.files.add(workspace_id, upload, pieces(content))

    async def made(
        self, content: bytes, filename: str = "out.txt", session: str = "sesn_1"
    ) -> File:
        return await self.add(content, filename=filename, session_id=session)

    async def read(self, file_id: str, workspace_id: str = HOME) -> bytes:
        opened = await self.files.open(workspace_id, file_id)
        return b"".join([piece async for piece in self.files.read(workspace_id, opened)])

    async def listed(self, session_id: str | None = None) -> Sequence[str]:
        return [file.id for file in await self.files.page(HOME, ALL, session_id)]

    async def sweep(self) -> None:
        await FileSweep(self.database, self.objects, self.clock).sweep()
        await self.objects.sweep()
