"""Marks of running sandboxes on disk, so that a new process finds what a dead one left.

Numbers of processes mean nothing in another life of the machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.hands import boot
from services.hands.backends.process import Handle, ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Marks:
    """One file per running sandbox in `directory`."""

    directory: Path

    def put(self, hand_id: str, processes: Iterable[ProcessId]) -> None:
        """Records the processes that a sandbox ends with."""
        mark = {
            "boot": boot.boot_id(),
            "processes": [[process.pid, process.started] for process in processes],
        }
        # Not fsynced: what it names does not outlive a crash of the machine either.
        path = self.directory / f"{hand_id}.json"
        content = json.dumps(mark).encode("ascii")
        try:
            _write(path, content)
        except FileNotFoundError:
            self.directory.mkdir(parents=True, exist_ok=True)
            _write(path, content)

    def remove(self, hand_id: str) -> None:
        """The sandbox has ended."""
        (self.directory / f"{hand_id}.json").unlink(missing_ok=True)

    def left(self) -> Iterator[tuple[str, tuple[Handle, ...]]]:
        """What each mark names and still runs. The caller closes the handles."""
        if not self.directory.is_dir():
            return
        for path in sorted(self.directory.glob("*.json")):
            try:
                mark = json.loads(path.read_text(encoding="ascii"))
                named = [ProcessId(int(pid), int(start)) for pid, start in mark["processes"]]
                same_boot = mark["boot"] == boot.boot_id()
            except (ValueError, KeyError, TypeError):
                named, same_boot = [], False  # torn by a crash of the machine
            running = []
            for process in named if same_boot else []:
                handle = Handle.open(process.pid)
                if handle is not None and handle.process == process:
                    running.append(handle)
                elif handle is not None:
                    handle.close()
            yield path.stem, tuple(running)


def _write(path: Path, content: bytes) -> None:
    # Not by `open`, which asks four things of a file before it writes: each start has two of these.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
