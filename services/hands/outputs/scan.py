"""What lies below a session's outputs, while its sandbox goes on changing it.

The directory is hostile ground (CASES S2): everything is looked at by its own name in its
directory, which is held open, no link is followed, and all of it is bounded. All of this blocks.
"""

from __future__ import annotations

import os
import stat
import time
import unicodedata
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from services.hands.archive.extents import extents
from services.hands.bringing import beneath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PART: Final = "outputs"
_MOMENT: Final = 100_000_000  # ns
_CHUNK: Final = 512 * 1024
_MAX_PATH: Final = 1024
"""Bytes of a file's name in the contract."""
_KINDS: Final = {
    stat.S_IFLNK: "it is a symbolic link",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFBLK: "it is a device",
    stat.S_IFCHR: "it is a device",
}
_NO_TEXT: Final = "its name is not UTF-8"
_CONTROL: Final = "its name has control characters"
_ELSEWHERE: Final = "it is a hard link of something elsewhere"


class Changed(Exception):  # noqa: N818  # something that happens
    """The file is another by now, or is gone."""


class Refused(Exception):  # noqa: N818  # a state of the file
    """The file is not one that is published; the text says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is published of one hand, and looked at. `holes` are bytes that a sparse file may
    seem to have.
    """

    files: int = 1000
    file_bytes: int = 500 * 1024 * 1024
    entries: int = 20_000
    depth: int = 64
    holes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """A file; `state` is another when the file is, `modified_ns` what it says of itself.

    Times are coarse: while it `is_young`, it may change once more in the same moment.
    """

    path: str
    size: int
    state: str
    modified_ns: int = 0
    is_young: bool = False


@dataclass(slots=True)
class Scan:
    """What was found: files in the order of their paths, and why other things are none."""

    files: list[Output] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def scan(root: Path, bounds: Bounds) -> Scan:
    """Looks at a volume's outputs. Raises `OSError`."""
    look = _Look(bounds)
    with beneath.opened(root, PART) as outputs:
        look.into(outputs, "", 0)
    return look.result()


class _Look:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.entries
        self._found: list[tuple[Output, tuple[int, int], int]] = []
        self._names: Counter[tuple[int, int]] = Counter()
        self._scan = Scan()

    def into(self, directory: int, above: str, depth: int) -> None:
        """Looks at all that is in an open directory."""
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in islice(entries, self._left + 1))
        for name in names:
            self._left -= 1
            if self._left < 0:
                self._scan.refused[above or "."] = "there is too much to look at"
                return
            path = f"{above}/{name}" if above else name
            if trouble := _trouble(path):
                self._scan.refused[_shown(path)] = trouble
                continue
            with suppress(FileNotFoundError):  # removed meanwhile
                self._one(directory, name, path, depth)

    def _one(self, directory: int, name: str, path: str, depth: int) -> None:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            file = status.st_dev, status.st_ino
            self._names[file] += 1
            young = time.time_ns() - status.st_ctime_ns < _MOMENT
            state, modified = state_of(status), status.st_mtime_ns
            output = Output(path, status.st_size, state, modified, is_young=young)
            self._found.append((output, file, status.st_nlink))
        elif not stat.S_ISDIR(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "it is no file")
            self._scan.refused[path] = kind
        elif depth >= self._bounds.depth:
            self._scan.refused[path] = "it is too deep"
        else:
            try:
                with beneath.opened(name, at=directory) as below:
                    self.into(below, path, depth + 1)
            except PermissionError:
                self._scan.refused[path] = "it cannot be read"
            except NotADirectoryError:
                return  # replaced meanwhile: looked at next time

    def result(self) -> Scan:
        """What is to be published of it."""
        scan, most = self._scan, self._bounds.file_bytes
        for output, file, links in sorted(self._found, key=lambda found: found[0].path):
            if links > self._names[file]:
                scan.refused[output.path] = _ELSEWHERE
            elif output.size > most:
                scan.refused[output.path] = f"it has {output.size} bytes, at most {most} are taken"
            else:
                scan.files.append(output)
        return scan


@contextmanager
def opened(root: Path, output: Output, bounds: Bounds) -> Iterator[int]:
    """A file that was found, open for reading. Raises `Changed` and `Refused`."""
    *above, name = output.path.split("/")
    try:
        with beneath.opened(root, PART, *above) as directory:
            descriptor = os.open(name, beneath.READ, dir_fd=directory)
    except PermissionError:
        raise Refused("it cannot be read") from None
    except OSError as error:
        raise Changed from error
    try:
        status = check(descriptor, output)
        pieces = extents(descriptor, status)
        held = status.st_size if pieces is None else sum(length for _, length in pieces)
        if status.st_size - held > bounds.holes:
            raise Refused(f"it is sparse: of its {status.st_size} bytes it has {held}")
        yield descriptor
    finally:
        os.close(descriptor)


def piece(descriptor: int, output: Output, at: int) -> bytes:
    """What is at a place of a file; nothing at its end. Raises `Changed` and `OSError`."""
    check(descriptor, output)  # each time: nothing more is sent of what has changed
    data = os.pread(descriptor, min(_CHUNK, output.size - at), at)
    if not data and at < output.size:
        raise Changed
    return data


def check(descriptor: int, output: Output) -> os.stat_result:
    """Raises `Changed` where an open file is not what was found."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or state_of(status) != output.state:
        raise Changed
    return status


def state_of(status: os.stat_result) -> str:
    """Something that is another when a file's bytes are: its owner cannot set all of it."""
    facts = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return ":".join(map(str, facts))


def _trouble(path: str) -> str:
    """Why a path is no name of a file; empty if it is one."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return _NO_TEXT
    if size > _MAX_PATH:
        return f"its path is longer than {_MAX_PATH} bytes"
    return _CONTROL if any(unicodedata.category(one) == "Cc" for one in path) else ""


def _shown(path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")[: _MAX_PATH // 4]
    text = raw.decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)
