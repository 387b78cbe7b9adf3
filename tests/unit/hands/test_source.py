"""Taking bytes from a registry: whole, bounded, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from services.hands.bringing.bringer import NotBrought
from services.hands.files.source import Source

DATA = bytes(range(256)) * 10_000


async def pieces(data: bytes = DATA, fail: Exception | None = None) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 300_000):
        yield data[at : at + 300_000]
    if fail is not None:
        raise fail


def digest(data: bytes = DATA) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_all_that_comes_is_there(tmp_path: Path) -> None:
    source = Source(SystemClock(), free_bytes=0)
    await source.save(pieces(), len(DATA), digest(), (tmp_path, "new"))
    assert (tmp_path / "new").read_bytes() == DATA
    await source.save(pieces(b""), 0, digest(b""), (tmp_path, "empty"))
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize(
    ("most", "sha256", "fail", "why", "away"),
    [
        (len(DATA), digest(b"other"), None, "not what was stored", True),
        (len(DATA) - 1, digest(), None, "larger than it may be", False),
        (len(DATA), digest(), DroverError(Reason.UNAVAILABLE, "it is away"), "it is away", True),
        (len(DATA), digest(), DroverError(Reason.NOT_FOUND, "no file"), "no file", False),
    ],
)
async def test_what_is_not_whole_is_told(
    tmp_path: Path, most: int, sha256: str, fail: Exception | None, why: str, *, away: bool
) -> None:
    source = Source(SystemClock(), free_bytes=0)
    with pytest.raises(NotBrought, match=why) as refused:
        await source.save(pieces(fail=fail), most, sha256, (tmp_path, "new"))
    assert refused.value.away is away


async def test_a_disk_that_is_almost_full_is_not_filled(tmp_path: Path) -> None:
    source = Source(SystemClock(), free_bytes=1 << 60)
    with pytest.raises(NotBrought, match=r"almost full: 3 MiB are needed, and 0 MiB are left"):
        await source.save(pieces(), len(DATA), digest(), (tmp_path, "new"), size=len(DATA))
    assert not [*tmp_path.iterdir()]


async def test_a_disk_that_gets_full_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("services.hands.files.source.os.write", full)
    with pytest.raises(NotBrought, match="the disk is full"):
        await Source(SystemClock(), free_bytes=0).save(
            pieces(), len(DATA), digest(), (tmp_path, "new")
        )


async def test_a_file_is_written_to_no_more_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()
    write, closed = os.write, list[int]()

    def slowly(descriptor: int, data: memoryview) -> int:
        begun.set()
        go.wait(30)
        assert descriptor not in closed
        return write(descriptor, data)

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        os.close(descriptor)

    fake = SimpleNamespace(**{**vars(os), "write": slowly, "close": close})
    monkeypatch.setattr("services.hands.files.source.os", fake)
    source = Source(SystemClock(), free_bytes=0)
    saving = asyncio.create_task(
        source.save(pieces(), len(DATA), digest(), (tmp_path, "new"), size=len(DATA))
    )
    await asyncio.to_thread(begun.wait, 30)
    saving.cancel()
    await asyncio.sleep(0)
    assert not closed
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert len(closed) == 1


async def test_memory_does_not_grow_with_a_file(tmp_path: Path) -> None:
    piece = bytes(1 << 20)
    count, whole = 64, hashlib.sha256()
    for _ in range(count):
        whole.update(piece)

    async def many() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield piece

    source = Source(SystemClock(), free_bytes=0)
    tracemalloc.start()
    try:
        place = tmp_path, "new"
        await source.save(many(), count * len(piece), whole.hexdigest(), place)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
