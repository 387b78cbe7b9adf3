"""Making and taking away what lies below a volume's directories, from outside of its sandbox.

Everything is opened by its own name in its directory, which is held open, and no link is followed:
whatever a volume has become, nothing outside of it is reached (CASES S2). All of this blocks.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe or a device must neither block nor become ours."""
MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = 0o755


@contextmanager
def opened(root: Path | str, *below: str, at: int | None = None) -> Iterator[int]:
    """A directory, entered step by step. Raises `OSError` where a step is none."""
    descriptor = os.open(root, ENTER, dir_fd=at)
    for name in below:
        descriptor = _enter(descriptor, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def made(part: int, directories: Sequence[str]) -> Iterator[int]:
    """A directory below an open one, made where it is missing; all may enter. Raises `OSError`."""
    descriptor = os.dup(part)
    for name in directories:
        descriptor = _enter(descriptor, name, make=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def beginning(directory: int, name: str, most: int) -> bytes:
    """The first bytes of a file. Raises `OSError`, also for what is no file."""
    descriptor = os.open(name, READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        pieces, left = [], most
        while left and (piece := os.read(descriptor, left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def replace(root: int, name: str, part: str, data: bytes) -> None:
    """Makes a file of a part's beside the directories, at once or not at all. Raises `OSError`."""
    whole = unfinished(part, "file")
    remove(root, whole)
    descriptor = os.open(whole, MAKE, 0o600, dir_fd=root)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.rename(whole, name, src_dir_fd=root, dst_dir_fd=root)


def put(root: int, whole: str, part: str, path: str) -> None:
    """Moves what is whole, beside a volume's directories, to its place below one of them.

    What is there already is replaced. Raises `OSError`.
    """
    *directories, name = path.split("/")
    with opened(part, at=root) as below, made(below, directories) as place:
        old = f"{whole}.old"
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                os.rename(name, old, src_dir_fd=place, dst_dir_fd=root)
        os.rename(whole, name, src_dir_fd=root, dst_dir_fd=place)
        remove(root, old)


def take_away(part: int, path: str) -> None:
    """Deletes what is at a path below an open directory, and the directories that are empty then.

    Nothing happens where nothing is there. Raises `OSError`.
    """
    *directories, name = path.split("/")
    with suppress(FileNotFoundError, NotADirectoryError):
        with opened(".", *directories, at=part) as place:
            remove(place, name)
        while directories:
            *above, last = directories
            with opened(".", *above, at=part) as place:
                try:
                    os.rmdir(last, dir_fd=place)
                except OSError:  # something else is in it
                    return
            directories = above


def remove(directory: int, name: str) -> None:
    """Deletes a file, a link or a tree. Raises `OSError` when something of it stays."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)


def clear(part: int) -> None:
    """Deletes all that is in an open directory. Raises `OSError`."""
    for name in os.listdir(part):
        remove(part, name)


def unfinished(part: str, key: str) -> str:
    """How what is on its way to a volume's directory is called until it is whole."""
    return f".{part}-{key}"


def drop_unfinished(root: int, part: str) -> None:
    """Deletes what a process that died has left beside a volume's directories."""
    for name in os.listdir(root):
        if name.startswith(unfinished(part, "")):
            remove(root, name)


def _enter(directory: int, name: str, *, make: bool = False) -> int:
    """Opens a directory in another, which is closed whatever comes of it."""
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, _DIRECTORY, dir_fd=directory)
                os.chmod(name, _DIRECTORY, dir_fd=directory)  # whatever this process's umask is
        return os.open(name, ENTER, dir_fd=directory)
    finally:
        os.close(directory)
