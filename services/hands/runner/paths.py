"""Paths of the file tools: confined to the session's directories, links never followed out.

A path is first made canonical and checked, then opened component by component without following
links. A link that is swapped in after the check makes the open fail.
"""

from __future__ import annotations

import errno
import posix
import stat

from services.hands.runner.failure import ToolFailure, ignoring

WORKDIR = "/workspace"
ROOTS = (WORKDIR, "/mnt/session", "/mnt/memory", "/mnt/skills", "/tmp")  # noqa: S108  # its own

# Not O_DIRECTORY: older gVisor then follows links all the same. NONBLOCK for FIFOs.
_DIRECTORY = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC


def within(path: str, root: str) -> bool:
    """Whether a canonical path is `root` or below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def resolve(path: str) -> str:
    """The canonical path: absolute, without links, missing last parts as they are spelled.

    Raises `ToolFailure` for a path that leads out of the session's directories.
    """
    if "\0" in path:
        raise ToolFailure(f"path {path!r}: embedded null byte")
    from os.path import join, realpath  # noqa: PLC0415  # slow to import

    canonical = realpath(join(WORKDIR, path))  # noqa: PTH118
    if not any(within(canonical, root) for root in ROOTS):
        raise ToolFailure(
            f"path {path!r} is outside the session's working directory and its other permitted "
            "directories"
        )
    return canonical


def open_beneath(canonical: str, flags: int, *, parents: bool = False) -> int:
    """Opens a canonical path without following any link; `parents` makes missing directories.

    Raises `OSError`.
    """
    root = next(root for root in ROOTS if within(canonical, root))
    parts = [part for part in canonical[len(root) :].split("/") if part]
    flags |= posix.O_NOFOLLOW | posix.O_CLOEXEC
    if not parts:
        return posix.open(root, flags)
    directory = posix.open(root, _DIRECTORY)
    try:
        for part in parts[:-1]:
            directory = _descend(directory, part, parents)
        return posix.open(parts[-1], flags, 0o644, dir_fd=directory)
    finally:
        posix.close(directory)


def open_directory(canonical: str) -> int:
    """Opens a directory as `open_beneath` does. Raises `OSError`, also for what is none."""
    fd = open_beneath(canonical, posix.O_RDONLY | posix.O_NONBLOCK)
    try:
        _check_directory(fd, canonical)
    except BaseException:
        posix.close(fd)
        raise
    return fd


def _check_directory(fd: int, path: str) -> None:
    if not stat.S_ISDIR(posix.fstat(fd).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, posix.strerror(errno.ENOTDIR), path)


def _descend(directory: int, part: str, make: bool) -> int:
    """Opens a directory below `directory`, which it closes when that succeeds."""
    try:
        below = posix.open(part, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
        with ignoring(FileExistsError):
            posix.mkdir(part, 0o755, dir_fd=directory)
        below = posix.open(part, _DIRECTORY, dir_fd=directory)
    posix.close(directory)
    return below
