"""Looking at a store's directory, which the sandbox may change at any moment (CASES S2).

Everything is opened by its own name in its directory, which is held open, and no link is followed.
A file is read through what was looked at, so that nothing can be put in its place. Permissions are
no part of a memory: what its owner has forbidden itself is lifted.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from services.hands.domain.memory.known import (
    MAX_BYTES,
    MAX_FILES,
    MAX_SEGMENTS,
    Content,
    Fingerprint,
    Odd,
    Scan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_ENTRIES: Final = 5 * MAX_FILES
"""Files, directories and what else there is that are looked at."""
_MOST_FILES: Final = MAX_FILES + 500
"""So many that an agent which has made a few too many is told of each by the store."""
_RECENT: Final = 50_000_000
"""Nanoseconds in which a second change may leave the same times: those are too coarse."""
_KINDS: Final = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
    stat.S_IFDIR: "directory",
}


class NoMemory(Exception):  # noqa: N818  # what a file is, not what went wrong
    """What is there is none. `kind` is that of an `Odd`, or empty where it is gone."""

    def __init__(self, kind: str = "") -> None:
        super().__init__(kind)
        self.kind = kind


class TooLarge(Exception):  # noqa: N818  # what a file is, not what went wrong
    """A file is larger than memories are; `seen` is what it was like."""

    def __init__(self, seen: Fingerprint) -> None:
        super().__init__()
        self.seen = seen


@contextmanager
def opened(memory: Path, slug: str) -> Iterator[int]:
    """A store's directory, below the volume's. Raises `OSError`."""
    above = os.open(memory, ENTER)
    try:
        descriptor = enter(above, slug.encode())
    finally:
        os.close(above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_there(memory: Path, slug: str, root: int) -> None:
    """Raises `FileNotFoundError` for a directory that is not in its place any more.

    A volume is taken away before anything of it is deleted.
    """
    if not os.path.samestat(os.fstat(root), (memory / slug).lstat()):
        raise FileNotFoundError(errno.ENOENT, "its volume is gone")


def scan(root: int) -> Scan:
    """What is in a directory, as far as there is not too much of it. Raises `OSError`."""
    found, device, entries = Scan(), os.fstat(root).st_dev, 0
    stack = [_Open("", os.dup(root))]
    try:
        while stack:
            here = stack[-1]
            entry = next(here.entries, None)
            if entry is None:
                stack.pop().close()
                continue
            entries += 1
            if entries > MAX_ENTRIES or len(found.files) + len(found.odd) > _MOST_FILES:
                found.whole = False
                break
            with suppress(FileNotFoundError):
                below = _note(found, f"{here.path}/{entry.name}", entry, here.descriptor, device)
                if below is not None:
                    stack.append(below)
    finally:
        for left in stack:
            left.close()
    return found


def read(root: int, path: str) -> tuple[bytes, Content]:
    """What is in a memory's file. Raises `NoMemory`, `TooLarge` and `OSError`."""
    with parent_of(root, path) as (directory, name):
        try:
            handle = os.open(name, LOOK, dir_fd=directory)
        except FileNotFoundError:
            raise NoMemory from None
        try:
            return content_of(handle)
        finally:
            os.close(handle)


def content_of(handle: int) -> tuple[bytes, Content]:
    """What is in a file that was looked at. Raises `NoMemory`, `TooLarge` and `OSError`."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise NoMemory(kind_of(status.st_mode))
    if status.st_size > MAX_BYTES:
        raise TooLarge(fingerprint(status))
    descriptor = reopened(handle, _READ, stat.S_IRUSR)
    try:
        before = os.fstat(descriptor)
        data = b""
        while piece := os.read(descriptor, MAX_BYTES + 1 - len(data)):
            data += piece
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise TooLarge(fingerprint(after))
    seen = fingerprint(after)
    certain = fingerprint(before) == seen and seen.size == len(data)
    if time.time_ns() - max(seen.changed, seen.modified) < _RECENT:
        certain = False
    return data, Content(sha256(data).hexdigest(), seen if certain else None)


def reopened(handle: int, flags: int, needed: int) -> int:
    """Opens just what a handle names, which is lifted what its owner may not do with it."""
    itself = f"/proc/self/fd/{handle}"
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    if mode & needed != needed:
        os.chmod(itself, mode | needed)  # noqa: PTH101  # no path: what the handle names
    return os.open(itself, flags)


def enter(directory: int, name: bytes) -> int:
    """Opens a directory in another one. Raises `OSError`: also where it is something else."""
    try:
        descriptor = os.open(name, ENTER, dir_fd=directory)
    except PermissionError:
        handle = os.open(name, LOOK | os.O_DIRECTORY, dir_fd=directory)
        try:
            return reopened(handle, ENTER & ~os.O_NOFOLLOW, stat.S_IRWXU)
        finally:
            os.close(handle)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(descriptor, mode | stat.S_IRWXU)
    return descriptor


@contextmanager
def parent_of(root: int, path: str) -> Iterator[tuple[int, bytes]]:
    """The directory of a path, which is there, and its last name.

    Raises `NoMemory` where it is not there, or is none, and `OSError`.
    """
    *above, name = segments(path)
    directory = os.dup(root)
    try:
        for one in above:
            try:
                below = enter(directory, one)
            except (FileNotFoundError, NotADirectoryError):
                raise NoMemory from None
            except OSError as error:
                raise NoMemory(_KINDS[stat.S_IFLNK]) from error
            os.close(directory)
            directory = below
        yield directory, name
    finally:
        os.close(directory)


def segments(path: str) -> list[bytes]:
    """The names that a path is made of."""
    return [os.fsencode(name) for name in path.removeprefix("/").split("/")]


def fingerprint(status: os.stat_result) -> Fingerprint:
    """What a file is like."""
    return Fingerprint(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def kind_of(mode: int) -> str:
    """What something that is no file is called."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


class _Open:
    """A directory that is being looked at."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.entries = os.scandir(descriptor)

    def close(self) -> None:
        self.entries.close()
        os.close(self.descriptor)


def _note(
    found: Scan, path: str, entry: os.DirEntry[str], directory: int, device: int
) -> _Open | None:
    """Notes an entry; opens it where it is to be looked into."""
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        found.files[path] = fingerprint(status)
        return None
    kind = kind_of(status.st_mode)
    if stat.S_ISDIR(status.st_mode) and path.count("/") <= MAX_SEGMENTS:
        try:
            below = enter(directory, os.fsencode(entry.name))
        except FileNotFoundError:
            return None
        except OSError:  # it has been replaced meanwhile, perhaps
            found.unseen.add(path)
            return None
        if os.fstat(below).st_dev == device:
            return _Open(path, below)
        os.close(below)
        kind = "mount"
    found.odd[path] = Odd(kind, status.st_ino)
    return None
