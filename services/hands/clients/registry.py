"""The registry, which has what sandboxes are given and takes what they leave: bytes, streamed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc

from chassis.context import call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.file.v1 import file_service_pb2 as files
from drover.file.v1.file_service_pb2_grpc import FileServiceStub
from drover.skill.v1 import skill_version_service_pb2 as skills
from drover.skill.v1.skill_version_service_pb2_grpc import SkillVersionServiceStub
from services.hands.clients.ended import Ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager
    from typing import Any

    import grpc.aio

    from drover.file.v1.file_pb2 import File
    from drover.file.v1.file_service_pb2_grpc import FileServiceAsyncStub
    from drover.skill.v1.skill_pb2 import SkillVersion
    from drover.skill.v1.skill_version_service_pb2_grpc import SkillVersionServiceAsyncStub

_WHO: Final = "the registry"
_SILENCE: Final = 30.0
"""Seconds without a piece after which a stream has broken off."""
_SECONDS: Final = 3600.0
"""For the largest file over a slow network."""
_UPLOAD_SECONDS: Final = 60.0
"""For an upload's answer, beside what its bytes take at `_SLOWEST`."""
_PAGE: Final = 1000
_SLOWEST: Final = 1 << 20
"""Bytes in a second."""


class RegistryClient:
    """Reads and writes over gRPC. Every method names the workspace that it is for."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._files: FileServiceAsyncStub = FileServiceStub(channel)
        self._skills: SkillVersionServiceAsyncStub = SkillVersionServiceStub(channel)

    @asynccontextmanager
    async def file(
        self, workspace_id: str, file_id: str
    ) -> AsyncIterator[tuple[File, AsyncIterator[bytes]]]:
        """What is known of a file, and its bytes. Raises `DroverError`, the iterator too."""
        request = files.ReadFileRequest(file_id=file_id)
        with _for(workspace_id):
            call = self._files.ReadFile(request, timeout=_SECONDS)
        try:
            yield (await _first(call)).file, _pieces(call)
        finally:
            call.cancel()

    @asynccontextmanager
    async def skill(
        self, workspace_id: str, skill_id: str, version: str
    ) -> AsyncIterator[tuple[SkillVersion, AsyncIterator[bytes]]]:
        """What is known of a skill's version, and its archive. Raises as `file`."""
        request = skills.DownloadSkillVersionRequest(skill_id=skill_id, version=version)
        with _for(workspace_id):
            call = self._skills.DownloadSkillVersion(request, timeout=_SECONDS)
        try:
            yield (await _first(call)).version, _pieces(call)
        finally:
            call.cancel()

    async def publish(
        self,
        workspace_id: str,
        session_id: str,
        name: str,
        size: int,
        pieces: AsyncIterator[bytes],
    ) -> File:
        """Stores a file that a session made, in the place of its earlier one of that name.

        Nothing is stored where `pieces` raises, which is raised here. Raises `DroverError`.
        """
        failure: list[BaseException] = []

        async def parts() -> AsyncIterator[files.UploadFileRequest]:
            header = files.FileHeader(filename=name, session_id=session_id)
            yield files.UploadFileRequest(header=header)
            try:
                async for piece in pieces:
                    yield files.UploadFileRequest(data=piece)
            except Exception as error:  # noqa: BLE001  # raised below: gRPC would only log it
                failure.append(error)
                call.cancel()
                return
            yield files.UploadFileRequest(complete=True)

        with _for(workspace_id):
            seconds = _UPLOAD_SECONDS + size / _SLOWEST
            call = self._files.UploadFile(parts(), timeout=seconds)
        ended = Ended(call)
        try:
            return (await call).file
        except grpc.RpcError as error:
            raise from_rpc_error(ended.error(error), _WHO) from error
        except asyncio.CancelledError:
            if failure:
                raise failure[0] from None
            raise
        finally:
            call.cancel()

    async def made(self, workspace_id: str, session_id: str) -> dict[str, int]:
        """When the files were stored that a session has made, by name, in nanoseconds since the
        epoch. Raises `DroverError`.
        """
        found: dict[str, int] = {}
        request = files.ListFilesRequest(scope_id=session_id, limit=_PAGE)
        while True:
            with _for(workspace_id):
                call = self._files.ListFiles(request, timeout=_SILENCE)
            try:
                page = await call
            except grpc.RpcError as error:
                raise from_rpc_error(error, _WHO) from error
            for file in page.data:
                if not file.copy_of:  # else the session was given it
                    found.setdefault(file.filename, file.created_at.ToNanoseconds())
            if not page.next_page:
                return found
            request.page = page.next_page


def _for(workspace_id: str) -> AbstractContextManager[None]:
    """What is called in the body is scoped to a workspace."""
    return call_context(replace(current_call(), workspace_id=workspace_id))


async def _first(call: grpc.aio.UnaryStreamCall[Any, Any]) -> Any:  # noqa: ANN401
    message = await _next(call)
    if message is None:
        raise DroverError(Reason.INTERNAL, "the registry answered nothing")
    return message


async def _pieces(call: grpc.aio.UnaryStreamCall[Any, Any]) -> AsyncIterator[bytes]:
    while (message := await _next(call)) is not None:
        yield message.data


async def _next(call: grpc.aio.UnaryStreamCall[Any, Any]) -> Any:  # noqa: ANN401
    """The next message of a stream, `None` at its end. Raises `DroverError`."""
    try:
        async with asyncio.timeout(_SILENCE):
            message = await call.read()
    except TimeoutError as error:
        text = f"the registry has sent nothing for {_SILENCE:g} s"
        raise DroverError(Reason.UNAVAILABLE, text) from error
    except grpc.RpcError as error:
        raise from_rpc_error(error, _WHO) from error
    return None if message is grpc.aio.EOF else message  # type: ignore[attr-defined]
