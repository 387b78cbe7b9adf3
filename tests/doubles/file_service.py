"""FileService in memory, as far as a brain reads it: files of the test's own, and its faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.file.v1.file_pb2 import File
from drover.file.v1.file_service_pb2 import ReadFileRequest, ReadFileResponse
from drover.file.v1.file_service_pb2_grpc import FileServiceServicer

_PIECE = 1000


class FakeFiles(FileServiceServicer):
    """Files by workspace and id. `reads` are the ids that were asked for."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], tuple[File, bytes]] = {}
        self.reads: list[str] = []
        # How often the next reads fail, and how many bytes the next one leaves out.
        self.away = 0
        self.cut = 0
        # Reads wait for this; the other says that one has begun.
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.asked = asyncio.Event()

    def add(
        self, file_id: str, mime_type: str, data: bytes, workspace_id: str = "wrkspc_default"
    ) -> None:
        file = File(id=file_id, filename=file_id, mime_type=mime_type, size_bytes=len(data))
        self.files[workspace_id, file_id] = file, data

    def remove(self, file_id: str) -> None:
        del self.files["wrkspc_default", file_id]

    async def ReadFile(
        self, request: ReadFileRequest, _context: Any
    ) -> AsyncIterator[ReadFileResponse]:
        self.reads.append(request.file_id)
        self.asked.set()
        await self.may_read.wait()
        if self.away:
            self.away -= 1
            raise DroverError(Reason.UNAVAILABLE, "away")
        found = self.files.get((current_call().workspace_id, request.file_id))
        if found is None:
            raise DroverError(Reason.NOT_FOUND, f"file {request.file_id} not found")
        file, data = found
        yield ReadFileResponse(file=file)
        end, self.cut = len(data) - self.cut, 0
        for at in range(0, end, _PIECE):
            yield ReadFileResponse(data=data[at : min(at + _PIECE, end)])
