"""Reading a tree that somebody may change meanwhile, and who does not mean well (CASES S2).

Everything is opened by its own name in its directory, which is held open, and no link is followed:
there is no path that could lead elsewhere. What an entry is, is asked of what was opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from services.hands.archive.bounds import MAX_DEPTH, MAX_PATH, PARTS, ArchiveRefused, Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe or a device that was put in the file's place must neither block nor become ours.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_REPLACED: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})
_MAY_ENTER: Final = stat.S_IRUSR | stat.S_IXUSR
_NAMED: Final = 10
_KINDS: Final = {
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


@dataclass(slots=True)
class LeftOut:
    """What of a tree cannot be kept: how much of each kind, and a few by name."""

    kinds: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def add(self, kind: str, path: bytes) -> None:
        """Notes one."""
        self.kinds[kind] += 1
        if len(self.names) < _NAMED:
            self.names.append(path[:200].decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or link, until the next one is asked for.

    `descriptor` is open for reading where it is a file, and only names it where it is a link.
    """

    path: bytes
    status: os.stat_result
    descriptor: int


@dataclass(slots=True)
class _Open:
    """A directory that is being read; `mode` is what it is given back, if that was lifted."""

    path: bytes
    descriptor: int
    names: Iterator[bytes]
    mode: int | None = None


def walk(root: int, bounds: Bounds, left_out: LeftOut) -> Iterator[Entry]:
    """Every entry below a volume's root, directories before what is in them.

    What goes away meanwhile is not there. Raises `ArchiveRefused` and `OSError`.
    """
    stack = [_Open(b"", root, iter([os.fsencode(part) for part in PARTS]))]
    walker = _Walker(stack, left_out, os.fstat(root).st_dev)
    try:
        while stack:
            here = stack[-1]
            name = next(here.names, None)
            if name is None:
                _leave(stack.pop(), root)
                continue
            bounds.take_entry()
            path = b"/".join((here.path, name)) if here.path else name
            if len(path) > MAX_PATH:
                raise ArchiveRefused("a path in it is too long")
            with suppress(FileNotFoundError):
                yield from walker.look(here.descriptor, name, path)
    finally:
        for left in stack:
            _leave(left, root)


@dataclass(frozen=True, slots=True)
class _Walker:
    stack: list[_Open]
    left_out: LeftOut
    device: int

    def look(self, directory: int, name: bytes, path: bytes) -> Iterator[Entry]:
        """The entry of that name, if it is one that is kept; a directory comes onto the stack."""
        handle = os.open(name, _LOOK, dir_fd=directory)
        try:
            status = os.fstat(handle)
            if stat.S_ISLNK(status.st_mode):
                yield Entry(path, status, handle)
            elif stat.S_ISREG(status.st_mode):
                yield from _file(directory, name, handle, path, self.left_out)
            elif stat.S_ISDIR(status.st_mode):
                yield from self._directory(directory, name, handle, path)
            else:
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
                self.left_out.add(kind, path)
        finally:
            os.close(handle)

    def _directory(self, directory: int, name: bytes, handle: int, path: bytes) -> Iterator[Entry]:
        status = os.fstat(handle)
        descriptor, before = _opened(directory, name, handle, _ENTER, _MAY_ENTER)
        if descriptor is None:
            self.left_out.add("unreadable directory", path)
            return
        # Of directories alone: on an overlay, files have numbers of the layers below.
        if os.fstat(descriptor).st_dev != self.device:
            os.close(descriptor)
            self.left_out.add("mount", path)
            return
        self.stack.append(_Open(path, descriptor, _names(descriptor), before))
        if len(self.stack) > MAX_DEPTH:
            raise ArchiveRefused("its directories are too deep")
        if before is None:  # else it is what the handle named, and looks otherwise for now
            status = os.fstat(descriptor)
        yield Entry(path, status, descriptor)


def check_whole(root: int) -> None:
    """Raises `FileNotFoundError` for a volume that somebody is deleting, or has deleted."""
    for part in PARTS:
        try:
            os.stat(part, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, f"its directory {part} is gone") from None


def fingerprint(root: int, bounds: Bounds) -> str:
    """Something that is another when anything of the tree is; cheap, for no file is read.

    It holds for this place alone: a copy has another.
    """
    digest = blake2b(digest_size=16)
    for entry in walk(root, bounds, LeftOut()):
        status = entry.status
        facts = [status.st_mode, status.st_mtime_ns, status.st_ino]
        if stat.S_ISREG(status.st_mode):
            facts += [status.st_size, status.st_nlink]
            if status.st_mode & stat.S_IRUSR:  # else looking at it has changed that time
                facts.append(status.st_ctime_ns)
        digest.update(b"%d %b %r;" % (len(entry.path), entry.path, facts))
    return digest.hexdigest()


def _file(
    directory: int, name: bytes, handle: int, path: bytes, left_out: LeftOut
) -> Iterator[Entry]:
    descriptor, before = _opened(directory, name, handle, _READ, stat.S_IRUSR)
    if descriptor is None:
        left_out.add("unreadable file", path)
        return
    try:
        if before is not None:
            os.fchmod(descriptor, before)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            yield Entry(path, status, descriptor)
        else:
            left_out.add("special file", path)
    finally:
        os.close(descriptor)


def _opened(
    directory: int, name: bytes, handle: int, flags: int, needed: int
) -> tuple[int | None, int | None]:
    """Opens what `name` is; nothing where that is forbidden for good.

    Its owner may have forbidden itself to read it. That is lifted, of `handle` and nothing else;
    the second value is then the mode to give back. Raises `FileNotFoundError` where it is another
    kind of thing by now.
    """
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    try:
        if mode & needed == needed:
            return os.open(name, flags, dir_fd=directory), None
        itself = f"/proc/self/fd/{handle}"
        os.chmod(itself, mode | needed)  # noqa: PTH101  # no path: what the handle names
        return os.open(itself, flags & ~os.O_NOFOLLOW), mode
    except PermissionError:
        return None, None
    except OSError as error:
        if error.errno in _REPLACED:
            raise FileNotFoundError(*error.args) from error
        raise


def _names(directory: int) -> Iterator[bytes]:
    with os.scandir(directory) as entries:
        for entry in entries:
            yield os.fsencode(entry.name)


def _leave(here: _Open, root: int) -> None:
    if here.descriptor == root:
        return
    if here.mode is not None:
        os.fchmod(here.descriptor, here.mode)
    os.close(here.descriptor)
