"""Files over the wire: what is stored, what is refused, and what a failure leaves: nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.file.v1 import file_service_pb2 as pb
from drover.file.v1.file_service_pb2_grpc import FileServiceStub
from tests.doubles.hands_waiting import eventually

if TYPE_CHECKING:
    from drover.file.v1.file_pb2 import File
    from services.registry.main import RegistrySettings

MIB = 1 << 20


@pytest.fixture
def files(channel: grpc.aio.Channel) -> Any:
    return FileServiceStub(channel)


def parts(
    *pieces: bytes, name: str = "a.txt", end: bool = True, **header: Any
) -> Iterable[pb.UploadFileRequest]:
    yield pb.UploadFileRequest(header=pb.FileHeader(filename=name, **header))
    for piece in pieces:
        yield pb.UploadFileRequest(data=piece)
    if end:
        yield pb.UploadFileRequest(complete=True)


async def upload(files: Any, *pieces: bytes, **header: Any) -> File:
    return (await files.UploadFile(parts(*pieces, **header))).file


async def refused(call: Any) -> DroverError:
    with pytest.raises(grpc.RpcError) as error:
        await call
    return from_rpc_error(error.value)


async def content(stream: Any) -> tuple[File, bytes]:
    first, *pieces = [message async for message in stream]
    assert all(len(piece.data) <= MIB for piece in pieces)
    return first.file, b"".join(piece.data for piece in pieces)


def kept(settings: RegistrySettings) -> list[Path]:
    """What the store of objects has."""
    return [path for path in (settings.data_dir / "files").rglob("*") if path.is_file()]


async def test_a_file_is_given_back_as_it_came(files: Any, settings: RegistrySettings) -> None:
    whole = bytes(range(256)) * 12_000
    made = await upload(files, whole[:5], b"", whole[5:MIB], whole[MIB:], name="Résumé 漢字 🐄.md")
    assert made.filename == "Résumé 漢字 🐄.md"
    assert made.mime_type == "text/markdown"
    assert made.size_bytes == len(whole)
    assert made.sha256 == hashlib.sha256(whole).hexdigest()
    assert not made.downloadable
    assert (await files.GetFile(pb.GetFileRequest(file_id=made.id))).file == made
    assert (await files.ListFiles(pb.ListFilesRequest())).data == [made]
    assert await content(files.ReadFile(pb.ReadFileRequest(file_id=made.id))) == (made, whole)
    assert len(kept(settings)) == 1


async def test_only_what_sessions_made_is_downloaded(files: Any) -> None:
    uploaded = await upload(files, b"x")
    error = await refused(content(files.DownloadFile(pb.DownloadFileRequest(file_id=uploaded.id))))
    assert (error.reason, error.error_code) == (Reason.INVALID_ARGUMENT, "file_not_downloadable")
    made = await upload(files, b"some", name="sub/a.txt", session_id="sesn_1")
    found = await content(files.DownloadFile(pb.DownloadFileRequest(file_id=made.id)))
    assert found == (made, b"some")
    assert made.scope.id == "sesn_1"


async def test_what_is_no_upload_is_refused_and_leaves_nothing(
    files: Any, settings: RegistrySettings
) -> None:
    data, end = pb.UploadFileRequest(data=b"x"), pb.UploadFileRequest(complete=True)
    header = pb.UploadFileRequest(header=pb.FileHeader(filename="a"))
    short = pb.UploadFileRequest(header=pb.FileHeader(filename="a", expires_in_seconds=60))
    for given in (
        [],
        [data, end],
        [header, header, end],
        [header, data, end, data],
        [header, pb.UploadFileRequest(data=bytes(5 * MIB)), end],
        [short, data, end],
        [*parts(b"x", name="a/b")],
        [*parts(b"x", mime_type="no kind")],
        [*parts(b"x", name="../a", session_id="sesn_1")],
    ):
        assert (await refused(files.UploadFile(given))).reason is Reason.INVALID_ARGUMENT
    assert (await refused(files.UploadFile([header, data]))).reason is Reason.CANCELLED
    assert (await files.ListFiles(pb.ListFilesRequest())).data == []
    assert kept(settings) == []


async def test_a_client_that_goes_away_leaves_nothing(
    files: Any, settings: RegistrySettings
) -> None:
    going = asyncio.Event()

    async def endless() -> AsyncIterator[pb.UploadFileRequest]:
        for part in parts(*[bytes(MIB)] * 12, end=False):
            yield part
        going.set()
        await asyncio.Event().wait()

    call = files.UploadFile(endless())
    async with asyncio.timeout(10):
        await going.wait()
    call.cancel()
    await eventually(lambda: kept(settings) == [])
    assert (await files.ListFiles(pb.ListFilesRequest())).data == []
