"""A registry that has files and skills in memory, over real gRPC."""

from __future__ import annotations

import asyncio
import hashlib
import io
import stat
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.file.v1 import file_service_pb2 as files
from drover.file.v1.file_service_pb2_grpc import (
    FileServiceServicer,
    add_FileServiceServicer_to_server,
)
from drover.skill.v1 import skill_version_service_pb2 as skills
from drover.skill.v1.skill_version_service_pb2_grpc import (
    SkillVersionServiceServicer,
    add_SkillVersionServiceServicer_to_server,
)
from services.hands.clients.registry import RegistryClient

HOME = "wrkspc_default"
TEXT = b"---\nname: adding\ndescription: Adds numbers up.\n---\nRun add.sh.\n"
_PIECE = 100_000
_SECRET = Secret("the installation's")


class RegistryDouble(FileServiceServicer, SkillVersionServiceServicer):
    """What it has, by workspace and id, and whose files are.

    `away` refuses everything, `gate` holds up every read. `published` has what sessions made, and
    `uploads` the names of all uploads that were complete.
    """

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.scopes: dict[str, str] = {}
        self.skills: dict[tuple[str, str, str], bytes] = {}
        self.published: dict[tuple[str, str], bytes] = {}
        self.uploads: list[str] = []
        self.workspaces: set[str] = set()
        self.read: list[str] = []
        self.refuse: DroverError | None = None
        self.away = False
        self.broken = False
        self.gate: asyncio.Event | None = None
        self.reading = asyncio.Event()
        self.list_files: Any = None

    def file(self, file_id: str, data: bytes, session_id: str = "") -> None:
        self.files[HOME, file_id] = data
        self.scopes[file_id] = session_id

    def skill(self, skill_id: str, version: str, archive: bytes, workspace: str = HOME) -> None:
        self.skills[workspace, skill_id, version] = archive

    async def ReadFile(self, request: Any, context: Any) -> None:  # type: ignore[override]
        data = self._found(self.files, request.file_id)
        about = files.ReadFileResponse()
        about.file.id, about.file.size_bytes = request.file_id, len(data)
        about.file.scope.id = self.scopes.get(request.file_id, "")
        about.file.sha256 = hashlib.sha256(data).hexdigest()
        await context.write(about)
        await self._held(request.file_id)
        for piece in self._pieces(data):
            await context.write(files.ReadFileResponse(data=piece))

    async def DownloadSkillVersion(self, request: Any, context: Any) -> None:  # type: ignore[override]
        data = self._found(self.skills, request.skill_id, request.version)
        about = skills.DownloadSkillVersionResponse()
        about.version.id, about.version.sha256 = request.version, hashlib.sha256(data).hexdigest()
        await context.write(about)
        await self._held(request.skill_id)
        for piece in self._pieces(data):
            await context.write(skills.DownloadSkillVersionResponse(data=piece))

    async def UploadFile(self, requests: Any, context: Any) -> Any:  # type: ignore[override]
        self._check()
        header, data, complete = None, b"", False
        async for request in requests:
            kind = request.WhichOneof("part")
            if kind == "header":
                header = request.header
            elif kind == "data":
                data += request.data
            complete = complete or request.complete
        if header is None or not complete:
            raise DroverError(Reason.CANCELLED, "the upload has broken off")
        if self.refuse is not None:
            raise self.refuse
        self.workspaces.add(current_call().workspace_id)
        self.published[header.session_id, header.filename] = data
        self.uploads.append(header.filename)
        return files.UploadFileResponse()

    async def ListFiles(self, request: Any, context: Any) -> Any:
        return await self.list_files(request, context)

    def _check(self) -> None:
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, "the registry is away")

    def _found(self, store: Mapping[Any, bytes], *key: str) -> bytes:
        self._check()
        data = store.get((current_call().workspace_id, *key))
        if data is None:
            raise DroverError(Reason.NOT_FOUND, f"there is no {' '.join(key)}")
        return data

    async def _held(self, what: str) -> None:
        self.read.append(what)
        self.reading.set()
        if self.gate is not None:
            await self.gate.wait()

    def _pieces(self, data: bytes) -> list[bytes]:
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        if self.broken:
            raise DroverError(Reason.UNAVAILABLE, "the store has broken off")
        return pieces


@asynccontextmanager
async def registry_double() -> AsyncIterator[tuple[RegistryDouble, RegistryClient]]:
    """The double, and a client of it."""
    double, server = RegistryDouble(), GrpcServer("127.0.0.1:0", _SECRET, reflection=False)
    server.add(add_FileServiceServicer_to_server, double)
    server.add(add_SkillVersionServiceServicer_to_server, double)
    await server.start()
    channel = open_channel(server.address, _SECRET)
    try:
        yield double, RegistryClient(channel)
    finally:
        await channel.close(None)
        await server.stop(0)


def archive(
    entries: Mapping[str, bytes | tuple[int, bytes]], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip of these. With a number, that is the entry's mode, its kind included."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as opened:
        for name, given in entries.items():
            mode, data = given if isinstance(given, tuple) else (stat.S_IFREG | 0o644, given)
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            opened.writestr(info, data)
    return made.getvalue()


def skill_archive(folder: str = "adding") -> bytes:
    """A skill with a program."""
    return archive(
        {
            f"{folder}/SKILL.md": TEXT,
            f"{folder}/scripts/add.sh": (stat.S_IFREG | 0o755, b"#!/bin/sh\necho $(($1 + $2))\n"),
        }
    )
