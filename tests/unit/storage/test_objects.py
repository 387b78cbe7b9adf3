"""What every store of objects promises: a directory, and a bucket behind real HTTP."""

from __future__ import annotations

import asyncio
import itertools
import os
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from storage.objects import PIECE, ObjectGone, Objects, ObjectsAway, open_objects
from tests.doubles.s3 import ACCESS_KEY, S3, SECRET_KEY, running_s3

CHUNK = b"0123456789abcdef" * 65536  # 1 MiB
LARGE = 2 * PIECE + 5


@pytest.fixture
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "file":
        return open_objects(f"file://{tmp_path}/a%20store")
    return bucket(request.getfixturevalue("s3"))


def bucket(s3: S3) -> Objects:
    return open_objects("s3://bucket/some/prefix", s3.environment)


async def pieces(size: int, failure: Exception | None = None) -> AsyncIterator[bytes]:
    for start in range(0, size, len(CHUNK)):
        yield CHUNK[: size - start]
    if failure is not None:
        raise failure


async def read(objects: Objects, name: str, size: int) -> bytes:
    return b"".join([piece async for piece in objects.read(name, size)])


@pytest.mark.parametrize("size", [0, 1, PIECE, LARGE])
async def test_object_is_read_as_it_was_put(objects: Objects, size: int) -> None:
    name = "sesn_1@build/ckpt_1.tar.gz"
    await objects.put(name, pieces(size))
    assert await read(objects, name, size) == b"".join([piece async for piece in pieces(size)])
    await objects.delete(name)
    with pytest.raises(ObjectGone):
        await read(objects, name, 1)
    await objects.delete(name)


@pytest.mark.parametrize("size", [100, LARGE])
async def test_object_whose_pieces_fail_is_not_stored(objects: Objects, size: int) -> None:
    with pytest.raises(LookupError, match="no more"):
        await objects.put("name", pieces(size, LookupError("no more")))
    with pytest.raises(ObjectGone):
        await read(objects, "name", 1)


async def test_object_that_is_shorter_than_it_was_is_told_or_read_short(objects: Objects) -> None:
    await objects.put("name", pieces(1000))
    assert len(await read(objects, "name", 1500)) == 1000
    with pytest.raises(ObjectsAway):
        await read(objects, "name", 3 * PIECE)


async def test_cancelled_upload_leaves_nothing(s3: S3, tmp_path: Path) -> None:
    for objects in (bucket(s3), open_objects(f"file://{tmp_path}/store")):
        begun = asyncio.Event()

        async def endless(begun: asyncio.Event = begun) -> AsyncIterator[bytes]:
            for number in itertools.count():
                yield CHUNK
                if number > 20:
                    begun.set()
                    await asyncio.sleep(0.01)

        upload = asyncio.create_task(objects.put("sesn/name", endless()))
        await begun.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
    assert (s3.objects, s3.uploads) == ({}, {})
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


async def test_leftovers_of_an_upload_that_died_go_with_the_object(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}/store")
    (tmp_path / "store" / "sesn").mkdir()
    (tmp_path / "store" / "sesn" / "one.tar.gz#1").write_bytes(b"half")
    (tmp_path / "store" / "sesn" / "two.tar.gz").write_bytes(b"whole")
    await objects.delete("sesn/one.tar.gz")
    assert [path.name for path in (tmp_path / "store" / "sesn").iterdir()] == ["two.tar.gz"]
    await objects.delete("sesn/two.tar.gz")
    assert [*(tmp_path / "store").iterdir()] == []


async def test_store_that_works_is_probed_without_a_trace(objects: Objects, tmp_path: Path) -> None:
    await objects.probe()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("status", [403, 503])
async def test_store_that_refuses_is_told_without_its_secrets(s3: S3, status: int) -> None:
    s3.status = status
    with pytest.raises(ObjectsAway, match=f"it answers {status}") as refused:
        await bucket(s3).put("name", pieces(10))
    told = "".join(traceback.format_exception(refused.value))
    assert SECRET_KEY not in told
    assert ACCESS_KEY not in told
    assert "Signature" not in told


async def test_store_that_is_not_there_is_told_soon() -> None:
    environment = S3().environment | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    async with asyncio.timeout(20):
        with pytest.raises(ObjectsAway, match="cannot be reached"):
            await open_objects("s3://bucket", environment).probe()


async def test_answer_that_breaks_off_is_asked_for_again(s3: S3) -> None:
    objects = bucket(s3)
    await objects.put("name", pieces(LARGE))
    s3.cut_after = 1000
    with pytest.raises(ObjectsAway):
        await read(objects, "name", LARGE)
    s3.cut_after = 0
    assert len(await read(objects, "name", LARGE)) == LARGE


async def test_large_object_is_never_whole_in_memory(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}/store")
    await objects.put("warm", pieces(3 * PIECE))
    before, size = resident(), 96 << 20
    await objects.put("large", pieces(size))
    found = 0
    async for piece in objects.read("large", size):
        found += len(piece)
    assert found == size
    assert resident() - before < 64 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize(
    "url",
    [
        "/a/directory",
        "file://host/directory",
        "file:relative",
        "http://bucket",
        "s3://",
        f"s3://{ACCESS_KEY}:{SECRET_KEY}@bucket/prefix",
        "s3://bucket?region=x",
    ],
)
def test_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(CannotStartError) as refused:
        open_objects(url, {})
    assert SECRET_KEY not in str(refused.value)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStartError, match="cannot be made"):
        open_objects(f"file://{tmp_path}/file/below")


async def test_directory_is_its_owners_alone_and_stays(tmp_path: Path) -> None:
    await open_objects(f"file://{tmp_path}/store").probe()
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
