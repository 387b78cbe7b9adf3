"""FileService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.file.v1 import file_service_pb2 as pb
from drover.file.v1.file_service_pb2_grpc import FileServiceServicer
from services.registry.domain.files.file import new_upload, not_downloadable
from services.registry.domain.files.names import Kinds
from services.registry.domain.files.ports import Copy
from services.registry.domain.ports import Listing
from services.registry.rpc.once import is_new, once
from services.registry.rpc.sending import Turns, messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from chassis.clock import Clock
    from services.registry.domain.files.file import Upload
    from services.registry.domain.files.ports import FileStore, Opened
    from services.registry.rpc.once import Context

_PIECE: Final = 4 * 1024 * 1024
_MOST_IDS: Final = 100
_COPY_ID: Final = re.compile(r"file_[0-9A-Za-z]{1,64}")

_log = structlog.get_logger("registry.files")


class FileRpc(FileServiceServicer):
    """Serves files, within the calling workspace.

    So many `uploads` and `downloads` at once; for the house as many again, which wait their turn.
    """

    def __init__(self, files: FileStore, clock: Clock, uploads: int, downloads: int) -> None:
        self._files = files
        self._clock = clock
        self._kinds = Kinds()
        self._uploads, self._downloads = Turns(uploads), Turns(downloads)

    async def UploadFile(
        self, requests: AsyncIterator[pb.UploadFileRequest], context: Context
    ) -> pb.UploadFileResponse:
        """Stores a file as it comes."""
        first = await anext(requests, pb.UploadFileRequest())
        if not first.HasField("header"):
            raise DroverError(Reason.INVALID_ARGUMENT, "header: an upload begins with it")
        upload = new_upload(first.header, self._kinds)
        call = once(pb.UploadFileResponse, "file")
        pieces = _pieces(requests, upload)
        async with self._uploads.of(house=bool(upload.session_id)):
            file = await self._files.add(current_call().workspace_id, upload, pieces, call)
        if is_new(call, context):
            _log.info(
                "file_stored",
                file_id=file.id,
                bytes=file.size_bytes,
                session_id=upload.session_id or None,
            )
        return pb.UploadFileResponse(file=file)

    async def GetFile(self, request: pb.GetFileRequest, _context: object) -> pb.GetFileResponse:
        """What is known of a file."""
        file = await self._files.get(current_call().workspace_id, request.file_id)
        return pb.GetFileResponse(file=file)

    async def ListFiles(
        self, request: pb.ListFilesRequest, _context: object
    ) -> pb.ListFilesResponse:
        """Lists files, newest first; or some, by their ids."""
        workspace_id = current_call().workspace_id
        session_id = request.scope_id if request.HasField("scope_id") else None
        if request.ids:
            for other in ("page", "limit"):
                if request.HasField(other):
                    raise DroverError(Reason.INVALID_ARGUMENT, f"ids: not together with {other}")
            ids = [*dict.fromkeys(request.ids)]
            if len(ids) > _MOST_IDS:
                raise DroverError(Reason.INVALID_ARGUMENT, f"ids: must be at most {_MOST_IDS}")
            some = await self._files.some(workspace_id, ids, session_id)
            return pb.ListFilesResponse(data=some)
        binding = CursorBinding(("files", workspace_id, str(session_id)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, include_archived=True)
        files, last = cut(await self._files.page(workspace_id, listing, session_id), limit)
        answer = pb.ListFilesResponse(data=files)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteFile(
        self, request: pb.DeleteFileRequest, context: Context
    ) -> pb.DeleteFileResponse:
        """Deletes a file."""
        call = once(pb.DeleteFileResponse, "id")
        await self._files.delete(current_call().workspace_id, request.file_id, call)
        if is_new(call, context):
            _log.info("file_deleted", file_id=request.file_id)
        return pb.DeleteFileResponse(id=request.file_id)

    async def DownloadFile(
        self, request: pb.DownloadFileRequest, _context: object
    ) -> AsyncGenerator[pb.DownloadFileResponse, None]:
        """The bytes of a file, for who may have them."""
        opened = await self._files.open(current_call().workspace_id, request.file_id)
        if not opened.file.downloadable:
            raise not_downloadable(request.file_id)
        async with self._downloads.of(house=False):
            first = pb.DownloadFileResponse(file=opened.file)
            async with aclosing(messages(first, self._read(opened))) as sending:
                async for message in sending:
                    yield message

    async def ReadFile(
        self, request: pb.ReadFileRequest, _context: object
    ) -> AsyncGenerator[pb.ReadFileResponse, None]:
        """The bytes of a file, for the house."""
        opened = await self._files.open(current_call().workspace_id, request.file_id)
        async with self._downloads.of(house=True):
            first = pb.ReadFileResponse(file=opened.file)
            async with aclosing(messages(first, self._read(opened))) as sending:
                async for message in sending:
                    yield message

    async def CopyFiles(
        self, request: pb.CopyFilesRequest, _context: object
    ) -> pb.CopyFilesResponse:
        """Gives a session copies of files."""
        for number, copy in enumerate(request.copies):
            if not _COPY_ID.fullmatch(copy.copy_id):
                raise DroverError(
                    Reason.INVALID_ARGUMENT, f"copies.{number}.copy_id: must be the id of a file"
                )
        copies = [Copy(copy.file_id, copy.copy_id) for copy in request.copies]
        files = await self._files.copy(
            current_call().workspace_id, request.session_id, copies, self._clock.now()
        )
        return pb.CopyFilesResponse(files=files)

    async def DeleteSessionFiles(
        self, request: pb.DeleteSessionFilesRequest, _context: object
    ) -> pb.DeleteSessionFilesResponse:
        """Deletes all files of a session."""
        await self._files.end_session(
            current_call().workspace_id, request.session_id, self._clock.now()
        )
        return pb.DeleteSessionFilesResponse()

    async def ReopenSessionFiles(
        self, request: pb.ReopenSessionFilesRequest, _context: object
    ) -> pb.ReopenSessionFilesResponse:
        """Takes what comes for a session that is there again."""
        await self._files.reopen_session(current_call().workspace_id, request.session_id)
        return pb.ReopenSessionFilesResponse()

    def _read(self, opened: Opened) -> AsyncGenerator[bytes, None]:
        return self._files.read(current_call().workspace_id, opened)


async def _pieces(
    requests: AsyncIterator[pb.UploadFileRequest], upload: Upload
) -> AsyncIterator[bytes]:
    """The bytes of an upload behind its header; another header behind them amends it.

    Its end alone does not tell: gRPC ends the stream of a caller that is gone in the same way,
    shortly before it cancels the call.
    """
    complete = False
    async for request in requests:
        part = request.WhichOneof("part")
        if complete or part is None:
            raise DroverError(
                Reason.INVALID_ARGUMENT, "data: behind the header there are pieces, then the end"
            )
        if part == "header":
            upload.amend(request.header)
        if len(request.data) > _PIECE:
            raise DroverError(Reason.INVALID_ARGUMENT, f"data: a piece has at most {_PIECE} bytes")
        complete = request.complete
        if request.data:
            yield request.data
    if not complete:
        raise DroverError(Reason.CANCELLED, "the upload broke off")
