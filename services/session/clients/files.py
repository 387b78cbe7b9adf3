"""The registry's files, as far as sessions are given some, and show some to their model."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
import grpc.aio

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.file.v1 import file_service_pb2 as pb
from drover.file.v1.file_service_pb2_grpc import FileServiceStub
from services.session.domain import sources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterator, Sequence

    from chassis.clock import Clock
    from drover.file.v1 import file_pb2
    from services.session.domain.resources.files import Copy
    from services.session.domain.session import SessionRef

T = TypeVar("T")

_DEADLINE: Final = 10.0
_AT_ONCE: Final = 100
"""Files that are asked for by their ids in one request."""


class Files:
    """FileService over gRPC. Every method raises `DroverError`, and costs nothing for no files."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock) -> None:
        self._stub = FileServiceStub(channel)
        self._clock = clock

    async def check(self, uses: Sequence[sources.FileUse]) -> None:
        """Raises NOT_FOUND and INVALID_ARGUMENT for files that the model cannot be shown."""
        if uses:
            found = await self._known({use.file_id for use in uses})
            sources.check(uses, found, self._clock.now())

    async def copy(self, session_id: str, copies: Sequence[Copy]) -> None:
        """Gives a session copies of files, all of them or none.

        Raises NOT_FOUND, naming the path of the first file that is not there, or no more.
        """
        try:
            await self._copy(session_id, copies)
        except DroverError as error:
            if error.reason is Reason.NOT_FOUND:
                uses = [sources.FileUse(copy.file_id, "", copy.path) for copy in copies]
                found = await self._known({copy.file_id for copy in copies})
                sources.check_there(uses, found, self._clock.now())
            raise

    async def copy_rest(self, session_id: str, copies: Sequence[Copy]) -> None:
        """As `copy`, without those that are not there, or no more."""
        try:
            await self._copy(session_id, copies)
        except DroverError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            found, now = await self._known({copy.file_id for copy in copies}), self._clock.now()
            there = {file.id for file in found.values() if not sources.has_expired(file, now)}
            await self._copy(session_id, [copy for copy in copies if copy.file_id in there])

    async def delete(self, ref: SessionRef, file_id: str) -> None:
        """Deletes a file of a session. One that is another's, or nobody's, is left alone."""
        with _within(ref):
            found = (await self._known({file_id})).get(file_id)
            if found is None or found.scope.id != ref.session_id:
                return
            request = pb.DeleteFileRequest(file_id=file_id)
            try:
                await _answer(self._stub.DeleteFile(request, timeout=_DEADLINE))
            except DroverError as error:
                if error.reason is not Reason.NOT_FOUND:
                    raise

    async def delete_all(self, ref: SessionRef) -> None:
        """Deletes all files of a session."""
        request = pb.DeleteSessionFilesRequest(session_id=ref.session_id)
        with _within(ref):
            await _answer(self._stub.DeleteSessionFiles(request, timeout=_DEADLINE))

    async def reopen(self, ref: SessionRef) -> None:
        """Has a session take files that was deleted, and is there again."""
        request = pb.ReopenSessionFilesRequest(session_id=ref.session_id)
        with _within(ref):
            await _answer(self._stub.ReopenSessionFiles(request, timeout=_DEADLINE))

    async def _copy(self, session_id: str, copies: Sequence[Copy]) -> None:
        if copies:
            request = pb.CopyFilesRequest(
                session_id=session_id,
                copies=[pb.FileCopy(file_id=one.file_id, copy_id=one.copy_id) for one in copies],
            )
            await _answer(self._stub.CopyFiles(request, timeout=_DEADLINE))

    async def _known(self, file_ids: Collection[str]) -> dict[str, file_pb2.File]:
        """Those of the files that the workspace has."""
        ids = sorted(file_ids)
        answers = await asyncio.gather(
            *(
                _answer(
                    self._stub.ListFiles(
                        pb.ListFilesRequest(ids=ids[first : first + _AT_ONCE]), timeout=_DEADLINE
                    )
                )
                for first in range(0, len(ids), _AT_ONCE)
            )
        )
        return {file.id: file for answer in answers for file in answer.data}


@contextmanager
def _within(ref: SessionRef) -> Iterator[None]:
    """Calls in the workspace of a session, for who works for nobody's request."""
    with call_context(CallContext(ref.workspace_id, current_call().request_id)):
        yield


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error, "the registry service") from error
