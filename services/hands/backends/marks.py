"""Marks of running sandboxes on disk, so that a new process finds what a dead one left.

They are the lines of one file, each of which says what a sandbox ends with from then on; nothing,
once it has ended. A file for every sandbox would have each start make one and each end delete one,
which some file systems take long over.

Numbers of processes mean nothing in another life of the machine. So nothing is synced: what a line
names does not outlive a crash of the machine either.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Final

from services.hands import boot
from services.hands.backends.process import Handle, ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_LONG: Final = 256 * 1024
"""Bytes that are appended before the file is written anew, with those that run alone."""


class Marks:
    """Marks in `file`, of one process at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._running: dict[str, bytes] = {}
        self._appended = 0

    def put(self, hand_id: str, processes: Iterable[ProcessId]) -> None:
        """Records the processes that a sandbox ends with. Raises `OSError`."""
        named = [[process.pid, process.started] for process in processes]
        line = _line({"boot": boot.boot_id(), "hand": hand_id, "processes": named})
        self._append(line)
        self._running[hand_id] = line

    def remove(self, hand_id: str) -> None:
        """The sandbox has ended."""
        if self._running.pop(hand_id, None) is None:
            return
        try:
            self._append(_line({"boot": boot.boot_id(), "hand": hand_id, "processes": []}))
        except OSError:
            return  # a full disk: the mark is of processes that are no more

    def left(self) -> Iterator[tuple[str, tuple[Handle, ...]]]:
        """What marks of an earlier process name and still runs. The caller closes the handles."""
        for hand_id, named in self.named().items():
            running = []
            for process in named:
                handle = Handle.open(process.pid)
                if handle is not None and handle.process == process:
                    running.append(handle)
                elif handle is not None:
                    handle.close()
            yield hand_id, tuple(running)

    def clear(self) -> None:
        """Nothing of what earlier processes have marked runs any more."""
        self._file.unlink(missing_ok=True)

    def named(self) -> dict[str, list[ProcessId]]:
        """What the file says that each sandbox ends with, of those that have not."""
        found: dict[str, list[ProcessId]] = {}
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return found
        for line in filter(None, lines):
            try:
                mark = json.loads(line)
                hand_id, same_boot = str(mark["hand"]), mark["boot"] == boot.boot_id()
                named = [ProcessId(int(pid), int(start)) for pid, start in mark["processes"]]
            except (ValueError, KeyError, TypeError):
                continue  # torn by a full disk, or a crash of the machine
            found.pop(hand_id, None)
            if named and same_boot:
                found[hand_id] = named
        return found

    def _append(self, line: bytes) -> None:
        if self._appended > _LONG:
            self._write_anew()
        _write(self._file, line, os.O_APPEND)
        self._appended += len(line)

    def _write_anew(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            _write(new, b"".join(self._running.values()), os.O_TRUNC)
            new.rename(self._file)
        except OSError:
            new.unlink(missing_ok=True)  # a full disk: the old one says the same
        self._appended = 0


def _line(mark: dict[str, object]) -> bytes:
    # The end of the line before, should that have been torn, and not of this one.
    return b"\n" + json.dumps(mark).encode("ascii")


def _write(path: Path, content: bytes, how: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        if os.write(fd, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
