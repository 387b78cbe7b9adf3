"""Files over the wire: what is stored, what is refused, and what a failure leaves: nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from chassis.context import CallContext, call_context
from chassis.errors import CannotStartError, DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.file.v1 import file_service_pb2 as pb
from drover.file.v1.file_service_pb2_grpc import FileServiceStub
from services.registry.main import RegistrySettings
from tests.doubles.hands_waiting import eventually
from tests.doubles.objects import MemoryObjects

if TYPE_CHECKING:
    from drover.file.v1.file_pb2 import File

MIB = 1 << 20


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    """The store of the registry that the test asks for behind this."""
    made = MemoryObjects(piece=5 * MIB)
    monkeypatch.setattr(RegistrySettings, "store", lambda _settings: made)
    return made


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


def kept(settings: RegistrySettings) -> list[str]:
    """What the store of objects has. Directories may go meanwhile."""
    return [name for _, _, names in os.walk(settings.data_dir / "files") for name in names]


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


async def test_what_is_said_behind_the_bytes_is_when_they_expire(files: Any) -> None:
    late = pb.FileHeader(filename="other", expires_in_seconds=3_600)
    end = pb.UploadFileRequest(header=late), pb.UploadFileRequest(complete=True)
    made = (await files.UploadFile([*parts(b"x", end=False), *end])).file
    assert made.filename == "a.txt"
    assert made.expires_at.seconds - made.created_at.seconds == 3_600


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


async def test_what_a_form_says_behind_its_file_counts_too(files: Any) -> None:
    behind = pb.UploadFileRequest(header=pb.FileHeader(expires_in_seconds=3600, filename="b"))
    first, data, end = parts(b"x")
    file = (await files.UploadFile([first, data, behind, end])).file
    assert file.expires_at.seconds - file.created_at.seconds == 3600
    assert file.filename == "a.txt"
    behind.header.expires_in_seconds = 60
    late = await refused(files.UploadFile([first, data, behind, end]))
    assert "expires_in_seconds" in late.message


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
    async with asyncio.timeout(30):
        await going.wait()
    call.cancel()
    await eventually(lambda: kept(settings) == [])
    assert (await files.ListFiles(pb.ListFilesRequest())).data == []


async def test_a_store_that_fails_is_told_and_nothing_is_half_there(
    memory: MemoryObjects, files: Any
) -> None:
    whole = await upload(files, b"whole")
    memory.fail_after = MIB
    error = await refused(files.UploadFile(parts(bytes(MIB), b"x")))
    assert error.reason is Reason.UNAVAILABLE
    assert "Input/output error" in error.message
    assert (await files.ListFiles(pb.ListFilesRequest())).data == [whole]
    assert [*memory.objects.values()] == [b"whole"]
    memory.failing = "it answers 503"
    reading = content(files.ReadFile(pb.ReadFileRequest(file_id=whole.id)))
    assert (await refused(reading)).reason is Reason.UNAVAILABLE


async def test_a_lost_file_fails_before_it_begins_and_tells_no_name_of_an_object(
    files: Any, settings: RegistrySettings
) -> None:
    made = await upload(files, b"lost", session_id="sesn_1")
    for place in (settings.data_dir / "files").rglob("obj_*"):
        place.unlink()
    for call in (
        files.DownloadFile(pb.DownloadFileRequest(file_id=made.id)),
        files.ReadFile(pb.ReadFileRequest(file_id=made.id)),
    ):
        with pytest.raises(grpc.RpcError) as raised:
            await call.read()
        error = from_rpc_error(raised.value)
        assert error.reason is Reason.INTERNAL
        assert error.message == "the store has lost bytes of what was asked for"


async def test_a_slow_reader_is_waited_for(memory: MemoryObjects, files: Any) -> None:
    size, taken = 48 * MIB, 0
    memory.piece = MIB
    made = await upload(files, *[bytes(MIB)] * 48, name="a", session_id="sesn_1")
    counted = memory.read

    async def counting(name: str, size: int) -> AsyncIterator[bytes]:
        nonlocal taken
        async for piece in counted(name, size):
            taken += len(piece)
            yield piece

    memory.read = counting  # type: ignore[assignment,method-assign]
    read = 0
    async for message in files.DownloadFile(pb.DownloadFileRequest(file_id=made.id)):
        read += len(message.data)
        assert taken - read <= 3 * MIB
    assert read == size


class TestTransfersAtOnce:
    @pytest.fixture
    def settings(self, settings: RegistrySettings) -> RegistrySettings:
        return settings.model_copy(update={"max_uploads": 1, "max_downloads": 1})

    async def test_those_over_the_bound_are_refused_at_once_but_for_the_house(
        self, files: Any
    ) -> None:
        made = await upload(files, *[bytes(MIB)] * 8, session_id="sesn_1")
        asked = pb.DownloadFileRequest(file_id=made.id)
        slow = files.DownloadFile(asked)
        await slow.read()
        error = await refused(files.DownloadFile(asked).read())
        assert (error.reason, error.retry_after) == (Reason.RESOURCE_EXHAUSTED, 1)
        house = await content(files.ReadFile(pb.ReadFileRequest(file_id=made.id)))
        assert house == (made, bytes(8 * MIB))
        slow.cancel()

        async def freed() -> bool:
            try:
                return await content(files.DownloadFile(asked)) == house
            except grpc.RpcError:
                return False

        async with asyncio.timeout(30):
            while not await freed():
                pass

    async def test_uploads_are_bounded_in_the_same_way(self, files: Any) -> None:
        going, ended = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[pb.UploadFileRequest]:
            header, *rest = parts(*[bytes(MIB)] * 8)
            for part in (header, *rest[:-1]):
                yield part
            going.set()
            await ended.wait()
            yield rest[-1]

        first = files.UploadFile(slow())
        async with asyncio.timeout(30):
            await going.wait()
        error = await refused(files.UploadFile(parts(b"x")))
        assert (error.reason, error.retry_after) == (Reason.RESOURCE_EXHAUSTED, 1)
        await upload(files, b"x", session_id="sesn_1")
        ended.set()
        await first
        await upload(files, b"x")


async def test_sessions_are_given_copies_and_lose_all_their_files(files: Any) -> None:
    file = await upload(files, b"x")
    wanted = pb.CopyFilesRequest(
        session_id="sesn_1", copies=[pb.FileCopy(file_id=file.id, copy_id="file_01copy")]
    )
    (copy,) = (await files.CopyFiles(wanted)).files
    assert (copy.id, copy.scope.id, copy.downloadable) == ("file_01copy", "sesn_1", False)
    assert list((await files.CopyFiles(wanted)).files) == [copy]
    scoped = pb.ListFilesRequest(scope_id="sesn_1")
    nowhere = await refused(files.ListFiles(pb.ListFilesRequest(scope_id="")))
    assert nowhere.message == "scope_id: at least 1 character is required"
    assert (await files.ListFiles(scoped)).data == [copy]
    with call_context(CallContext(workspace_id="wrkspc_other")):
        assert (await files.ListFiles(scoped)).data == []
        assert (await refused(files.CopyFiles(wanted))).reason is Reason.CONFLICT
        wanted.copies[0].copy_id = "file_01other"
        error = await refused(files.CopyFiles(wanted))
    assert (error.reason, error.metadata["file_id"]) == (Reason.NOT_FOUND, file.id)
    wanted.copies[0].copy_id = "no/id"
    assert "copies.0.copy_id" in (await refused(files.CopyFiles(wanted))).message
    await files.DeleteSessionFiles(pb.DeleteSessionFilesRequest(session_id="sesn_1"))
    assert (await files.ListFiles(pb.ListFilesRequest())).data == [file]


async def test_lists_take_pages_or_ids(files: Any) -> None:
    made = [await upload(files, b"x") for _ in range(3)]
    newest = [file.id for file in reversed(made)]
    first = await files.ListFiles(pb.ListFilesRequest(limit=2))
    assert [file.id for file in first.data] == newest[:2]
    rest = await files.ListFiles(pb.ListFilesRequest(limit=2, page=first.next_page))
    assert [file.id for file in rest.data] == newest[2:]
    assert not rest.HasField("next_page")
    ids = [newest[2], "file_unknown", *[newest[0]] * 100]  # what is there twice counts once
    some = await files.ListFiles(pb.ListFilesRequest(ids=ids))
    assert [file.id for file in some.data] == [newest[0], newest[2]]
    for other in ({"page": first.next_page}, {"limit": 2}):
        error = await refused(files.ListFiles(pb.ListFilesRequest(ids=ids, **other)))
        assert error.reason is Reason.INVALID_ARGUMENT
    many = pb.ListFilesRequest(ids=[f"file_{number}" for number in range(101)])
    assert (await refused(files.ListFiles(many))).reason is Reason.INVALID_ARGUMENT
    wrong = pb.ListFilesRequest(page=first.next_page, scope_id="sesn_1")
    assert (await refused(files.ListFiles(wrong))).reason is Reason.INVALID_ARGUMENT


async def test_deleted_files_are_gone_with_their_bytes(
    files: Any, settings: RegistrySettings
) -> None:
    file = await upload(files, b"x")
    assert (await files.DeleteFile(pb.DeleteFileRequest(file_id=file.id))).id == file.id
    for call in (
        files.GetFile(pb.GetFileRequest(file_id=file.id)),
        files.DeleteFile(pb.DeleteFileRequest(file_id=file.id)),
        content(files.ReadFile(pb.ReadFileRequest(file_id=file.id))),
    ):
        assert (await refused(call)).reason is Reason.NOT_FOUND
    await eventually(lambda: kept(settings) == [])


async def test_a_registry_whose_store_cannot_be_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token")
    for url in ("ftp://somewhere/else", f"file://{tmp_path}/token/below"):
        settings = RegistrySettings(data_dir=tmp_path, token_file=tmp_path / "token", files_url=url)
        with pytest.raises(CannotStartError, match=r"^DROVER_FILES_URL: "):
            settings.store()
