"""What every store of files promises."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.file.v1.file_pb2 import File
from services.registry.domain.files.file import Limits, Upload
from services.registry.domain.files.ports import Copy
from services.registry.domain.ports import Listing
from tests.contract.registry.files import ALL, ELSEWHERE, HOME, Cabinet, pieces
from tests.contract.registry.test_once import once

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from storage import Database

HOUR = timedelta(hours=1)


@pytest.fixture
def cabinets(emptied: list[Database]) -> list[Cabinet]:
    """One registry's files as two processes have them."""
    cabinet = Cabinet(emptied[0])
    return [cabinet, cabinet.beside(emptied[1])]


@pytest.fixture
def cabinet(cabinets: list[Cabinet]) -> Cabinet:
    return cabinets[0]


async def refused(call: Awaitable[object], reason: Reason, code: str | None = None) -> DroverError:
    with pytest.raises(DroverError) as error:
        await call
    assert (error.value.reason, error.value.error_code) == (reason, code)
    return error.value


async def test_a_file_is_kept_with_its_bytes(cabinets: list[Cabinet]) -> None:
    cabinet, other = cabinets
    file = await cabinet.add(b"some bytes")
    assert file.size_bytes == 10
    assert file.sha256 == hashlib.sha256(b"some bytes").hexdigest()
    assert not file.HasField("expires_at")
    assert not file.HasField("scope")
    assert await other.files.get(HOME, file.id) == file
    assert await other.read(file.id) == b"some bytes"
    empty = await cabinet.add(b"")
    assert await other.read(empty.id) == b""


async def test_nothing_is_seen_or_done_from_another_workspace(cabinet: Cabinet) -> None:
    file = await cabinet.add()
    made = await cabinet.made(b"x")
    for call in (
        cabinet.files.get(ELSEWHERE, file.id),
        cabinet.files.open(ELSEWHERE, file.id),
        cabinet.files.delete(ELSEWHERE, file.id),
        cabinet.files.copy(ELSEWHERE, "sesn_2", [Copy(file.id, "file_copy")], cabinet.clock.now()),
    ):
        await refused(call, Reason.NOT_FOUND)
    assert await cabinet.files.page(ELSEWHERE, ALL) == []
    assert await cabinet.files.page(ELSEWHERE, ALL, "sesn_1") == []
    assert await cabinet.files.some(ELSEWHERE, [file.id]) == []
    await cabinet.files.end_session(ELSEWHERE, "sesn_1", cabinet.clock.now())
    other = await cabinet.add(b"y", ELSEWHERE, filename="out.txt", session_id="sesn_3")
    assert other.id != made.id
    assert await cabinet.listed() == [made.id, file.id]


async def test_lists_are_newest_first_and_follow_one_another(cabinet: Cabinet) -> None:
    files = []
    for _ in range(3):
        cabinet.clock.at += timedelta(seconds=1)
        files.insert(0, await cabinet.add())
    first = await cabinet.files.page(HOME, Listing(2, include_archived=True))
    assert first == files[:2]
    after = Position(micros(first[-1].created_at), first[-1].id)
    assert await cabinet.files.page(HOME, Listing(2, after, include_archived=True)) == files[2:]
    made = await cabinet.made(b"x")
    assert await cabinet.files.page(HOME, ALL, "sesn_1") == [made]
    assert await cabinet.files.page(HOME, ALL, "sesn_2") == []
    some = [files[2].id, "file_unknown", files[0].id, made.id]
    assert await cabinet.files.some(HOME, some) == [made, files[0], files[2]]
    assert await cabinet.files.some(HOME, some, "sesn_1") == [made]


async def test_only_what_sessions_made_is_downloadable_unless_uploads_are(
    cabinet: Cabinet,
) -> None:
    uploaded, made = await cabinet.add(), await cabinet.made(b"x")
    (copy,) = await cabinet.files.copy(
        HOME, "sesn_2", [Copy(uploaded.id, "file_copy")], cabinet.clock.now()
    )
    assert (uploaded.downloadable, made.downloadable, copy.downloadable) == (False, True, False)
    assert (uploaded.copy_of, made.copy_of, copy.copy_of) == ("", "", uploaded.id)
    generous = Cabinet(cabinet.database, Limits(20, 50, downloadable_uploads=True))
    for file in (uploaded, made, copy):
        assert (await generous.files.get(HOME, file.id)).downloadable


async def test_bytes_go_with_the_last_file_that_has_them(cabinet: Cabinet) -> None:
    file = await cabinet.add()
    copies = [Copy(file.id, "file_c1"), Copy(file.id, "file_c2")]
    await cabinet.files.copy(HOME, "sesn_1", copies, cabinet.clock.now())
    await cabinet.files.delete(HOME, file.id)
    await refused(cabinet.files.delete(HOME, file.id), Reason.NOT_FOUND)
    await cabinet.sweep()
    assert await cabinet.read("file_c1") == b"some bytes"
    await cabinet.files.delete(HOME, "file_c1")
    await cabinet.sweep()
    assert await cabinet.read("file_c2") == b"some bytes"
    await cabinet.files.end_session(HOME, "sesn_1", cabinet.clock.now())
    await cabinet.sweep()
    assert cabinet.bytes.objects == {}


async def test_a_session_that_is_there_again_takes_files_again(cabinet: Cabinet) -> None:
    file = await cabinet.add()
    copies = [Copy(file.id, "file_c1")]
    await cabinet.files.end_session(HOME, "sesn_1", cabinet.clock.now())
    call = cabinet.files.copy(HOME, "sesn_1", copies, cabinet.clock.now())
    await refused(call, Reason.NOT_FOUND)
    await cabinet.files.reopen_session(ELSEWHERE, "sesn_1")
    call = cabinet.files.copy(HOME, "sesn_1", copies, cabinet.clock.now())
    await refused(call, Reason.NOT_FOUND)
    await cabinet.files.reopen_session(HOME, "sesn_1")
    await cabinet.files.copy(HOME, "sesn_1", copies, cabinet.clock.now())


@pytest.mark.parametrize("failure", ["client", "store", "size", "quota"])
async def test_of_an_upload_that_fails_nothing_is_kept(cabinet: Cabinet, failure: str) -> None:
    if failure == "quota":
        for _ in range(2):
            await cabinet.add(bytes(20))
    before = await cabinet.listed()
    given = pieces(bytes(15))
    if failure == "client":
        given, reason, code = pieces(bytes(15), fail=LookupError()), None, None
    elif failure == "store":
        cabinet.bytes.fail_after = 10
        reason, code = Reason.UNAVAILABLE, None
    elif failure == "size":
        given, reason, code = pieces(bytes(15), bytes(6)), Reason.REQUEST_TOO_LARGE, None
    else:
        reason, code = Reason.INVALID_ARGUMENT, "storage_quota_exceeded"
    adding = cabinet.files.add(HOME, Upload("a.txt", "text/plain"), given)
    if reason is None:
        with pytest.raises(LookupError):
            await adding
    else:
        await refused(adding, reason, code)
    assert await cabinet.listed() == before
    await cabinet.objects.sweep()
    cabinet.clock.at += HOUR
    await cabinet.sweep()
    assert len(cabinet.bytes.objects) == len(before)


async def test_quota_counts_uploads_and_what_sessions_made_but_no_copies(
    cabinet: Cabinet,
) -> None:
    uploaded = await cabinet.add(bytes(20))
    await cabinet.made(bytes(20))
    copies = [Copy(uploaded.id, f"file_{number}") for number in range(9)]
    await cabinet.files.copy(HOME, "sesn_2", copies, cabinet.clock.now())
    await cabinet.add(bytes(10))
    full = "storage_quota_exceeded"
    await refused(cabinet.add(b"x"), Reason.INVALID_ARGUMENT, full)
    await refused(cabinet.made(b"x", "other"), Reason.INVALID_ARGUMENT, full)
    await cabinet.add(bytes(20), ELSEWHERE)
    await cabinet.made(bytes(19) + b"x")  # in the place of what was there
    await cabinet.files.delete(HOME, "file_0")
    await refused(cabinet.add(b"x"), Reason.INVALID_ARGUMENT, full)
    await cabinet.files.delete(HOME, uploaded.id)
    await cabinet.add(bytes(20))
    await cabinet.files.end_session(HOME, "sesn_1", cabinet.clock.now())
    await cabinet.add(bytes(20))
    await refused(cabinet.add(b"x"), Reason.INVALID_ARGUMENT, full)


async def test_uploads_at_once_do_not_pass_the_quota_together(cabinets: list[Cabinet]) -> None:
    results = await asyncio.gather(
        *(cabinets[number % 2].add(bytes(20)) for number in range(8)), return_exceptions=True
    )
    kept = [result for result in results if isinstance(result, File)]
    assert len(kept) == 2
    assert {result.error_code for result in results if isinstance(result, DroverError)} == {
        "storage_quota_exceeded"
    }
    cabinets[0].clock.at += HOUR
    for cabinet in cabinets:
        await cabinet.objects.sweep()  # notes what was let go of
        cabinet.clock.at += HOUR
        await cabinet.sweep()
    assert len(cabinets[0].bytes.objects) == 2


async def test_what_a_session_makes_takes_the_place_of_its_earlier_file(
    cabinet: Cabinet,
) -> None:
    first = await cabinet.made(b"one")
    assert await cabinet.made(b"one") == first
    second = await cabinet.made(b"two")
    assert second.id != first.id
    await refused(cabinet.files.get(HOME, first.id), Reason.NOT_FOUND)
    others = [await cabinet.made(b"two", "b"), await cabinet.made(b"two", session="sesn_2")]
    assert {*await cabinet.listed()} == {second.id, *(other.id for other in others)}
    cabinet.clock.at += HOUR
    await cabinet.objects.sweep()
    cabinet.clock.at += HOUR
    await cabinet.sweep()
    assert sorted(cabinet.bytes.objects.values()) == [b"two"] * 3


async def test_what_a_session_makes_at_once_under_one_name_is_one_file(
    cabinets: list[Cabinet],
) -> None:
    made = [cabinets[number % 2].made(bytes([number])) for number in range(6)]
    files = await asyncio.gather(*made)
    (left,) = await cabinets[0].listed("sesn_1")
    assert left in [file.id for file in files]


async def test_copies_are_all_there_or_none(cabinet: Cabinet) -> None:
    file, now = await cabinet.add(expires_after=HOUR), cabinet.clock.now()
    missing = [Copy(file.id, "file_c1"), Copy("file_unknown", "file_c2")]
    error = await refused(cabinet.files.copy(HOME, "sesn_1", missing, now), Reason.NOT_FOUND)
    assert error.metadata["file_id"] == "file_unknown"
    assert await cabinet.listed("sesn_1") == []
    wanted = [Copy(file.id, "file_c2"), Copy(file.id, "file_c1")]
    copies = await cabinet.files.copy(HOME, "sesn_1", wanted, now)
    assert [copy.id for copy in copies] == ["file_c2", "file_c1"]
    assert {copy.scope.id for copy in copies} == {"sesn_1"}
    assert not copies[0].HasField("expires_at")
    # Once more, though the file is gone; but never for others.
    await cabinet.files.delete(HOME, file.id)
    assert await cabinet.files.copy(HOME, "sesn_1", wanted, now) == copies
    for session_id, copy in (("sesn_2", wanted[0]), ("sesn_1", Copy("file_c1", "file_c2"))):
        await refused(cabinet.files.copy(HOME, session_id, [copy], now), Reason.CONFLICT)
    await refused(
        cabinet.files.copy(HOME, "sesn_1", [Copy(file.id, "file_c3")], now), Reason.NOT_FOUND
    )


async def test_nothing_comes_for_a_session_whose_files_were_deleted(
    cabinets: list[Cabinet],
) -> None:
    cabinet, other = cabinets
    file = await cabinet.add()
    await cabinet.made(b"x")
    for _ in range(2):
        await other.files.end_session(HOME, "sesn_1", cabinet.clock.now())
    assert await cabinet.listed() == [file.id]
    await refused(cabinet.made(b"late"), Reason.NOT_FOUND)
    late = cabinet.files.copy(HOME, "sesn_1", [Copy(file.id, "file_c")], cabinet.clock.now())
    await refused(late, Reason.NOT_FOUND)


async def test_bytes_of_a_file_go_when_it_expires_and_what_is_known_of_it_later(
    cabinet: Cabinet,
) -> None:
    file = await cabinet.add(bytes(20), expires_after=HOUR)
    assert file.expires_at.ToDatetime() - file.created_at.ToDatetime() == HOUR
    cabinet.clock.at += HOUR - timedelta(seconds=1)
    await cabinet.sweep()
    assert await cabinet.read(file.id) == bytes(20)
    cabinet.clock.at += timedelta(seconds=1)
    for _ in range(2):
        await refused(cabinet.files.open(HOME, file.id), Reason.NOT_FOUND, "file_expired")
        late = cabinet.files.copy(HOME, "sesn_1", [Copy(file.id, "file_c")], cabinet.clock.now())
        await refused(late, Reason.NOT_FOUND, "file_expired")
        await cabinet.sweep()
    assert cabinet.bytes.objects == {}
    for _ in range(2):
        await cabinet.add(bytes(20))  # it counts no more
    assert await cabinet.files.get(HOME, file.id) == file
    cabinet.clock.at += timedelta(days=30)
    await cabinet.sweep()
    await refused(cabinet.files.get(HOME, file.id), Reason.NOT_FOUND)


async def test_a_file_that_is_deleted_while_it_is_opened_is_not_found(cabinet: Cabinet) -> None:
    file = await cabinet.add()
    opened = await cabinet.files.open(HOME, file.id)
    await cabinet.files.delete(HOME, file.id)
    await cabinet.sweep()
    await refused(anext(cabinet.files.read(HOME, opened)), Reason.NOT_FOUND)


async def test_bytes_that_were_changed_are_told(cabinet: Cabinet) -> None:
    file = await cabinet.add(b"some bytes")
    for name in cabinet.bytes.objects:
        cabinet.bytes.objects[name] = b"same bytes"
    await refused(cabinet.read(file.id), Reason.INTERNAL)


async def test_a_file_is_stored_and_deleted_once(cabinet: Cabinet) -> None:
    upload = Upload("a.txt", "text/plain")
    files = [
        await cabinet.files.add(HOME, upload, pieces(b"x"), once(File, "add")) for _ in range(2)
    ]
    assert files[0] == files[1]
    assert await cabinet.listed() == [files[0].id]
    cabinet.clock.at += HOUR
    await cabinet.objects.sweep()
    cabinet.clock.at += HOUR
    await cabinet.sweep()
    assert len(cabinet.bytes.objects) == 1
    await cabinet.files.delete(HOME, files[0].id)
    again = cabinet.files.add(HOME, upload, pieces(b"x"), once(File, "add"))
    await refused(again, Reason.NOT_FOUND)
