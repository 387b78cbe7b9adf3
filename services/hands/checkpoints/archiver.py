"""Volumes as streams, read and filled by processes of their own (`services.hands.archive`)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from services.hands.backends.port import Volume

# What is in there needs the standard library alone, and none of this process's environment.
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from services.hands.archive.program import main; main()"
)
_PACKAGES: Final = Path(__file__).parents[3]
_CHUNK: Final = 256 * 1024
_REPORT: Final = 64 * 1024
_SAID: Final = 2000
_END_SECONDS: Final = 1.0
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_log = structlog.get_logger("hands.checkpoints")


class ArchiveFailed(Exception):  # noqa: N818  # a state of a volume or of an archive
    """A volume could not be read or filled; the text says why.

    `lasting`: it will not go better until somebody changes the volume, or the archive.
    """

    def __init__(self, why: str, *, lasting: bool) -> None:
        super().__init__(why)
        self.lasting = lasting


@dataclass(slots=True)
class Packed:
    """An archive that was stored, and what its volume looked like just before."""

    size: int = 0
    digest: bytes = b""
    fingerprint: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()


class Archiver:
    """Starts the processes. `entries` and `data` bound what a volume may have, in bytes without
    its holes.
    """

    def __init__(self, *, entries: int, data: int) -> None:
        self._bounds = (str(entries), str(data))

    async def pack(
        self,
        volume: Volume,
        unless: str,
        store: Callable[[AsyncIterator[bytes]], Awaitable[None]],
    ) -> Packed | None:
        """Has `store` take a volume's archive; None if the volume's fingerprint is `unless`.

        Its iterator raises where there is no whole archive. Raises what `store` does,
        `ArchiveFailed` and `OSError`.
        """
        async with self._process(volume, "pack", unless) as (process, report):
            first = await process.stream.read(_CHUNK)
            if not first and "unchanged" in await report:
                return None
            packed = Packed()
            await store(_archive(process.stream, first, report, packed))
            return packed

    async def unpack(self, volume: Volume, archive: AsyncIterator[bytes]) -> str:
        """Fills an empty volume; its fingerprint. Raises what `archive` does, `ArchiveFailed` and
        `OSError`.
        """
        async with self._process(volume, "unpack") as (process, report):
            sink = process.sink
            with suppress(BrokenPipeError, ConnectionResetError):  # it has said why
                async for piece in archive:
                    for start in range(0, len(piece), _CHUNK):
                        if sink.is_closing():  # uvloop raises another error than asyncio
                            raise BrokenPipeError
                        sink.write(memoryview(piece)[start : start + _CHUNK])
                        await sink.drain()
                sink.write_eof()
            return str((await report).get("fingerprint", ""))

    @asynccontextmanager
    async def _process(
        self, volume: Volume, what: str, *more: str
    ) -> AsyncIterator[tuple[_Process, asyncio.Future[dict[str, Any]]]]:
        """A process, and what it says when it is done; it has ended afterwards."""
        root = os.open(volume.root, _DIRECTORY)
        try:
            owner = "" if volume.owner is None else str(volume.owner)
            process = await _started((what, str(root), owner, *self._bounds, *more), root)
        finally:
            os.close(root)
        report = asyncio.ensure_future(_report(process))
        try:
            yield process, report
        finally:
            if not report.done():
                process.running.terminate()
                await asyncio.wait([report], timeout=_END_SECONDS)
            if not report.done():
                process.running.kill()
            with suppress(ArchiveFailed):
                await report
            await process.ended()
            process.close()


@dataclass(frozen=True, slots=True)
class _Process:
    """A process, its standard input and output, and its standard error."""

    running: subprocess.Popen[bytes]
    stream: asyncio.StreamReader
    sink: asyncio.StreamWriter
    said: asyncio.StreamReader
    said_by: asyncio.StreamWriter

    async def ended(self) -> int:
        """Waits until it has ended; its status."""
        return await asyncio.to_thread(self.running.wait)

    def close(self) -> None:
        """Lets go of its streams."""
        self.sink.close()
        self.said_by.close()


async def _started(arguments: Sequence[str], root: int) -> _Process:
    """Starts a process that inherits the descriptor `root`. Raises `OSError`."""
    data, its_data = socket.socketpair()
    words, its_words = socket.socketpair()
    with its_data, its_words:
        try:
            running = _spawn(arguments, root, its_data.fileno(), its_words.fileno())
        except BaseException:
            data.close()
            words.close()
            raise
    try:
        stream, sink = await asyncio.open_connection(sock=data, limit=_CHUNK)
        said, said_by = await asyncio.open_connection(sock=words)
    except BaseException:
        running.kill()
        running.wait()
        raise
    return _Process(running, stream, sink, said, said_by)


def _spawn(arguments: Sequence[str], root: int, data: int, words: int) -> subprocess.Popen[bytes]:
    """Starts it from this thread, for it ends with the thread that started it.

    Not by the loop, which forks where it is uvloop: now and then the child of a process that has
    gRPC's threads dies of them before it is another program.
    """
    return subprocess.Popen(  # noqa: S603  # this program, and our own arguments
        (sys.executable, "-I", "-S", "-c", _PROGRAM, str(_PACKAGES), *arguments),
        stdin=data,
        stdout=data,
        stderr=words,
        pass_fds=(root,),
        env={},
        cwd="/",
    )


async def _archive(
    stream: asyncio.StreamReader,
    first: bytes,
    report: asyncio.Future[dict[str, Any]],
    packed: Packed,
) -> AsyncIterator[bytes]:
    digest, piece = sha256(), first
    while piece:
        digest.update(piece)
        packed.size += len(piece)
        yield piece
        piece = await stream.read(_CHUNK)
    told = await asyncio.shield(report)
    packed.digest = digest.digest()
    packed.fingerprint = told["fingerprint"]
    packed.left_out, packed.names = told["left_out"], tuple(told["names"])


async def _report(process: _Process) -> dict[str, Any]:
    """What a process said when it was done. Raises `ArchiveFailed`."""
    text = b""
    while piece := await process.said.read(_REPORT):
        text = (text + piece)[-_REPORT:]
    told: dict[str, Any] = {}
    with suppress(ValueError, IndexError):
        told = json.loads(text.splitlines()[-1])
    if "refused" in told:
        raise ArchiveFailed(told["refused"], lasting=True)
    if "failed" in told:
        raise ArchiveFailed(told["failed"], lasting=False)
    if "fingerprint" not in told:
        status = await process.ended()
        said = text[-_SAID:].decode("utf-8", "replace")
        _log.error("archiver_broke_off", status=status, said=said)
        raise ArchiveFailed("the process that does it ended before it was done", lasting=False)
    return told
