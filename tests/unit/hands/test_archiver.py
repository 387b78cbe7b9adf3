"""The processes that read and fill volumes: what they may, what they take, how they end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from services.hands.archive.bounds import PARTS
from services.hands.backends.port import Volume
from services.hands.backends.process import children
from services.hands.checkpoints.archiver import ArchiveFailed, Archiver, Packed

MIB = 1 << 20
OWNER = 250_000


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    root = tmp_path / "volume"
    for part in PARTS:
        (root / part).mkdir(parents=True)
    return owned(root)


def owned(root: Path) -> Volume:
    if os.geteuid() != 0:
        return Volume(root, None)
    for path in (root, *root.rglob("*")):
        os.chown(path, OWNER, OWNER)
    return Volume(root, OWNER)


def archiver(**given: int) -> Archiver:
    return Archiver(**{"entries": 1000, "data": 1 << 30, **given})


async def stored(volume: Volume, *, unless: str = "") -> tuple[Packed | None, list[bytes]]:
    archive: list[bytes] = []

    async def store(pieces: AsyncIterator[bytes]) -> None:
        archive.extend([piece async for piece in pieces])

    return await archiver().pack(volume, unless, store), archive


async def given(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def resident(pid: int | str = "self", which: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


async def test_volume_that_looks_the_same_is_not_read(volume: Volume, tmp_path: Path) -> None:
    packed, archive = await stored(volume)
    assert packed is not None
    assert sum(map(len, archive)) == packed.size
    assert await stored(volume, unless=packed.fingerprint) == (None, [])
    copy = tmp_path / "copy"
    copy.mkdir()
    fingerprint = await archiver().unpack(owned(copy), given(archive))
    assert await stored(Volume(copy, volume.owner), unless=fingerprint) == (None, [])


async def test_process_has_no_right_but_the_owners_and_nothing_of_ours(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never told")
    (volume.root / "workspace" / "data").write_bytes(os.urandom(2 * MIB))
    seen: dict[str, str] = {}

    async def store(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)  # it waits for us to read on
        (pid,) = (pid for pid in children(os.getpid()) if is_archive(pid))
        seen["status"] = Path(f"/proc/{pid}/status").read_text()
        seen["environ"] = Path(f"/proc/{pid}/environ").read_text()
        seen["cmdline"] = Path(f"/proc/{pid}/cmdline").read_text()
        async for _ in pieces:
            pass

    await archiver().pack(owned(volume.root), "", store)
    assert seen["environ"] == ""
    assert "never told" not in seen["cmdline"]
    assert "NoNewPrivs:\t1" in seen["status"]
    if volume.owner is not None:
        assert f"Uid:\t{OWNER}\t{OWNER}\t{OWNER}\t{OWNER}" in seen["status"]
        assert "Groups:\t \n" in seen["status"]
        assert "CapEff:\t0000000000000000" in seen["status"]


async def test_memory_stays_flat_for_large_and_for_sparse_files(
    volume: Volume, tmp_path: Path
) -> None:
    with (volume.root / "workspace" / "large").open("wb") as file:
        file.write(os.urandom(4 * MIB))
        for _ in range(60):
            file.write(b"a line of a log\n" * (MIB // 16))
    with (volume.root / "workspace" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    most, spool = 0, tmp_path / "archive"

    async def store(pieces: AsyncIterator[bytes]) -> None:
        nonlocal most
        with spool.open("wb") as file:
            async for piece in pieces:
                file.write(piece)
                for pid in filter(is_archive, children(os.getpid())):
                    most = max(most, resident(pid))

    async def read() -> AsyncIterator[bytes]:
        nonlocal most
        with spool.open("rb") as file:
            while piece := file.read(4 * MIB):
                yield piece
                for pid in filter(is_archive, children(os.getpid())):
                    most = max(most, resident(pid))

    before = resident()
    await archiver().pack(owned(volume.root), "", store)
    copy = tmp_path / "copy"
    copy.mkdir()
    await archiver().unpack(owned(copy), read())
    assert 0 < most < 48 * MIB
    assert resident() - before < 32 * MIB
    assert (copy / "workspace" / "sparse").stat().st_size == 1 << 40
    assert (copy / "workspace" / "large").stat().st_size == 64 * MIB


async def test_process_that_is_killed_stores_nothing(volume: Volume) -> None:
    (volume.root / "workspace" / "data").write_bytes(os.urandom(2 * MIB))

    async def store(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)
        for pid in filter(is_archive, children(os.getpid())):
            os.kill(pid, signal.SIGKILL)
        async for _ in pieces:
            pass

    with pytest.raises(ArchiveFailed, match="ended before it was done") as failed:
        await archiver().pack(owned(volume.root), "", store)
    assert not failed.value.lasting


async def test_directory_that_was_opened_up_is_closed_again_when_nobody_reads_on(
    volume: Volume,
) -> None:
    shut = volume.root / "workspace" / "shut"
    shut.mkdir()
    (shut / "data").write_bytes(os.urandom(4 * MIB))
    owned(volume.root)
    shut.chmod(0o000)

    async def store(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)
        raise LookupError("the store is away")

    with pytest.raises(LookupError):
        await archiver().pack(volume, "", store)
    assert shut.stat().st_mode & 0o777 == 0


async def test_refusal_reaches_the_store_as_a_failure(volume: Volume) -> None:
    (volume.root / "workspace" / "data").write_bytes(os.urandom(2 * MIB))

    async def store(pieces: AsyncIterator[bytes]) -> None:
        async for _ in pieces:
            pass
        pytest.fail("the archive looked whole")

    with pytest.raises(ArchiveFailed, match="too large") as failed:
        await archiver(data=MIB).pack(owned(volume.root), "", store)
    assert failed.value.lasting


@pytest.mark.parametrize("archive", [b"", b"nonsense", os.urandom(3 * MIB)])
async def test_stream_that_is_no_archive_is_refused(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(ArchiveFailed) as failed:
        await archiver().unpack(owned(tmp_path / "copy"), given([archive]))
    assert failed.value.lasting


def test_refusal_is_told_on_the_services_own_loop_too(tmp_path: Path) -> None:
    async def read() -> AsyncIterator[bytes]:
        yield b"nonsense"
        async with asyncio.timeout(30):
            while any(map(is_archive, children(os.getpid()))):  # noqa: ASYNC110
                await asyncio.sleep(0)
        for _ in range(100):  # until the loop knows, and has closed its end
            await asyncio.sleep(0)
        yield b"and more of it, when it has refused already"

    (tmp_path / "copy").mkdir()
    with pytest.raises(ArchiveFailed, match="cannot be decompressed") as failed:
        uvloop.run(archiver().unpack(owned(tmp_path / "copy"), read()))
    assert failed.value.lasting


async def test_volume_that_is_deleted_meanwhile_is_not_stored(volume: Volume) -> None:
    (volume.root / "workspace" / "data").write_bytes(os.urandom(2 * MIB))

    async def store(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)
        shutil.rmtree(volume.root)
        async for _ in pieces:
            pass
        pytest.fail("the archive looked whole")

    with pytest.raises(ArchiveFailed) as failed:
        await archiver().pack(owned(volume.root), "", store)
    assert not failed.value.lasting


@pytest.mark.parametrize("part", PARTS)
async def test_volume_that_is_not_whole_is_not_stored(volume: Volume, part: str) -> None:
    (volume.root / part).rmdir()
    with pytest.raises(ArchiveFailed) as failed:
        await stored(owned(volume.root))
    assert not failed.value.lasting


async def test_volume_that_its_owner_may_not_fill_is_told(volume: Volume, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs another user's directory")
    (tmp_path / "copy").mkdir(mode=0o700)
    _, archive = await stored(volume)
    with pytest.raises(ArchiveFailed, match="Permission denied") as failed:
        await archiver().unpack(Volume(tmp_path / "copy", OWNER), given(archive))
    assert not failed.value.lasting


def is_archive(pid: int) -> bool:
    try:
        return b"services.hands.archive" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
