"""The services of files and skills behind the gateway, in memory: uploads and downloads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from chassis.errors import DroverError, Reason
from drover.file.v1 import file_pb2, file_service_pb2_grpc
from drover.file.v1 import file_service_pb2 as files_pb
from drover.skill.v1 import (
    skill_pb2,
    skill_service_pb2_grpc,
    skill_version_service_pb2_grpc,
)
from drover.skill.v1 import skill_service_pb2 as skills_pb
from drover.skill.v1 import skill_version_service_pb2 as versions_pb
from tests.doubles.asked import Asked, stamp


class Transfers(Asked):
    """What has come of uploads, and how many of all streams broke off.

    `uploads` are the messages of those that were whole. `refuse_after` is how many messages an
    upload may have before the next `failure` is due.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uploads: list[list[Any]] = []
        self.refuse_after = 0
        self.began = 0
        self.broken = 0
        self._changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until something holds of what the streams have seen."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(holds)

    async def _take(self, requests: AsyncIterator[Any]) -> list[Any]:
        taken: list[Any] = []
        whole = False
        self.began += 1
        try:
            async for request in requests:
                if len(taken) == self.refuse_after:
                    self.note(request)
                taken.append(request)
                whole = request.complete
                async with self._changed:
                    self._changed.notify_all()
            if not whole:
                raise DroverError(Reason.CANCELLED, "it broke off")
        finally:
            if not whole:
                await self._break()
        self.uploads.append(taken)
        return taken

    async def _break(self) -> None:
        self.broken += 1
        async with self._changed:
            self._changed.notify_all()


class Files(Transfers, file_service_pb2_grpc.FileServiceServicer):
    """`content` are the bytes of every file, written in pieces, `sent` how many; `cut` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.file = file(size_bytes=7)
        self.content: tuple[bytes, ...] = (b"con", b"tent")
        self.cut: Exception | None = None
        self.sent = 0

    async def UploadFile(self, requests, context):
        taken = await self._take(requests)
        header = taken[0].header
        size = sum(len(one.data) for one in taken)
        made = file(filename=header.filename, mime_type=header.mime_type, size_bytes=size)
        return files_pb.UploadFileResponse(file=made)

    async def GetFile(self, request, context):
        self.note(request)
        return files_pb.GetFileResponse(file=self.file)

    async def ListFiles(self, request, context):
        self.note(request)
        return files_pb.ListFilesResponse(data=[self.file])

    async def DeleteFile(self, request, context):
        self.note(request)
        return files_pb.DeleteFileResponse(id=request.file_id)

    async def DownloadFile(self, request, context):
        self.note(request)
        whole = False
        try:
            yield files_pb.DownloadFileResponse(file=self.file)
            for piece in self.content:
                yield files_pb.DownloadFileResponse(data=piece)
                self.sent += len(piece)
            if self.cut is not None:
                raise self.cut
            whole = True
        finally:
            if not whole:
                await self._break()


class Skills(Transfers, skill_service_pb2_grpc.SkillServiceServicer):
    async def CreateSkill(self, requests, context):
        await self._take(requests)
        return skills_pb.CreateSkillResponse(skill=skill())

    async def GetSkill(self, request, context):
        self.note(request)
        return skills_pb.GetSkillResponse(skill=skill())

    async def ListSkills(self, request, context):
        self.note(request)
        return skills_pb.ListSkillsResponse(data=[skill()])

    async def DeleteSkill(self, request, context):
        self.note(request)
        return skills_pb.DeleteSkillResponse(id=request.skill_id)


class SkillVersions(Transfers, skill_version_service_pb2_grpc.SkillVersionServiceServicer):
    async def CreateSkillVersion(self, requests, context):
        await self._take(requests)
        return versions_pb.CreateSkillVersionResponse(version=version())

    async def GetSkillVersion(self, request, context):
        self.note(request)
        return versions_pb.GetSkillVersionResponse(version=version())

    async def ListSkillVersions(self, request, context):
        self.note(request)
        return versions_pb.ListSkillVersionsResponse(data=[version()])

    async def DeleteSkillVersion(self, request, context):
        self.note(request)
        return versions_pb.DeleteSkillVersionResponse(id=request.version)

    async def DownloadSkillVersion(self, request, context):
        self.note(request)
        yield versions_pb.DownloadSkillVersionResponse(version=version())
        yield versions_pb.DownloadSkillVersionResponse(data=b"PK")
        yield versions_pb.DownloadSkillVersionResponse(data=b"\3\4")


def file(**fields: Any) -> file_pb2.File:
    given = {"id": "file_1", "filename": "f.txt", "mime_type": "text/plain"} | fields
    return file_pb2.File(created_at=stamp(), **given)


def skill() -> skill_pb2.Skill:
    made = skill_pb2.Skill(id="skill_1", display_name="Sums", latest_version_id="skver_1")
    made.source.custom.SetInParent()
    made.created_at.CopyFrom(stamp())
    made.updated_at.CopyFrom(stamp())
    return made


def version() -> skill_pb2.SkillVersion:
    return skill_pb2.SkillVersion(
        id="skver_1", skill_id="skill_1", name="sums", description="Adds.", created_at=stamp()
    )
