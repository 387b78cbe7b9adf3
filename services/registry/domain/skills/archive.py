"""Reading a zip archive that may have been made to do harm.

Nothing that it claims is relied on: not how many entries there are, how large they are, where they
lie or what they are called. The library that reads it is given only what has the plain form of an
archive that a packer makes, and every byte that it unpacks is counted.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Final

from services.registry.domain.skills.entry import Entry
from services.registry.domain.skills.paths import Paths
from services.registry.domain.skills.refusals import refuse, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.registry.domain.skills.limits import SkillLimits

_BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What the library raises for archives that are none."""

_END: Final = struct.Struct("<4s4H2LH")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_END_MARK, _LOCAL_MARK, _ZIP64_MARK = b"PK\5\6", b"PK\3\4", b"PK\6\7"
_ZIP64_LOCATOR: Final = 20
_LONGEST_COMMENT: Final = 0xFFFF
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_UTF8: Final = 0x800
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNIX: Final = (3, 19)
"""Systems whose entries say a file's mode: Unix, and macOS."""
_UNIX_EXTRA: Final = 0x000D
_UNIX_EXTRA_FIXED: Final = 12
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def open_archive(file: IO[bytes], size: int, limits: SkillLimits) -> Iterator[list[Entry]]:
    """The files of an archive of `size` bytes. Raises INVALID_ARGUMENT, REQUEST_TOO_LARGE."""
    count = _count(file, size, limits)
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN:
        refuse("the zip archive cannot be read: it is damaged")
    with archive:
        infos = archive.infolist()
        if len(infos) != count:
            refuse("the zip archive has not as many entries as it says")
        _check_places(file, infos, archive.start_dir)
        yield list(_entries(archive, infos, limits))


@contextmanager
def unpacking(path: str) -> Iterator[None]:
    """Refuses an entry that cannot be unpacked."""
    try:
        yield
    except _BROKEN:
        refuse("it cannot be unpacked: the zip archive is damaged", path)


def _count(file: IO[bytes], size: int, limits: SkillLimits) -> int:
    """How many entries an archive says to have, before anything is made of them."""
    file.seek(max(0, size - _END.size - _LONGEST_COMMENT))
    tail = file.read()
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END.size:
        refuse("the zip archive has no end: it is damaged")
    if tail[max(0, at - _ZIP64_LOCATOR) : at].startswith(_ZIP64_MARK):
        refuse("the zip archive is in the form for very large ones (zip64)")
    _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        refuse("something follows the zip archive")
    if disk or first_disk or here != count:
        refuse("the zip archive is one part of several")
    if count > limits.entries:
        refuse(f"the zip archive has {count} entries, more than {limits.entries}")
    if start + length != size - len(tail) + at:
        refuse("something precedes the zip archive, or it is damaged")
    if length > limits.entries * (limits.path_bytes + 512):
        refuse("the zip archive has too long a directory")
    return int(count)


def _check_places(file: IO[bytes], infos: Sequence[zipfile.ZipInfo], end: int) -> None:
    """Refuses entries that lie over one another, or elsewhere than in the archive."""
    before, at = None, 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < at:
            name = info.orig_filename if before is None else before.orig_filename
            refuse("it lies over another entry of the zip archive", name)
        file.seek(info.header_offset)
        header = file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(_LOCAL_MARK):
            refuse("it is not where the zip archive says", info.orig_filename)
        *_, name_length, extra_length = _LOCAL.unpack(header)
        at = info.header_offset + _LOCAL.size + name_length + extra_length + info.compress_size
        if at > end:
            refuse("it is longer than the zip archive", info.orig_filename)
        before = info
    if infos and min(info.header_offset for info in infos):
        refuse("something precedes the zip archive's entries")


def _entries(
    archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo], limits: SkillLimits
) -> Iterator[Entry]:
    paths = Paths(limits)
    claimed = 0
    for info in infos:
        path = _path(info)
        mode = info.external_attr >> 16 if info.create_system in _UNIX else 0
        _check_kind(info, mode, path)
        claimed += info.file_size
        if claimed > limits.max_bytes:
            too_large(limits.max_bytes, path)
        if info.file_size > max(limits.ratio_from, limits.ratio * info.compress_size):
            refuse(f"it unpacks to more than {limits.ratio} times its size", path)
        if path.endswith("/") or stat.S_ISDIR(mode):
            if info.file_size:
                refuse("a directory that has content", path)
            paths.add(path.removesuffix("/"), directory=True)
        else:
            executable = bool(mode & 0o111) if stat.S_IMODE(mode) else None
            opened = partial(archive.open, info)
            yield Entry(path, paths.add(path), info.file_size, executable, opened)


def _path(info: zipfile.ZipInfo) -> str:
    """The name as it was written: the library ends it at its first NUL."""
    name = info.orig_filename
    if name.isascii() or info.flag_bits & _UTF8:
        return name
    try:
        return name.encode("cp437").decode()  # packers write UTF-8 and do not always say so
    except UnicodeError:
        refuse("its name is not UTF-8", name)


def _check_kind(info: zipfile.ZipInfo, mode: int, path: str) -> None:
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        refuse(f"{kind}, and no file", path)
    if info.flag_bits & _ENCRYPTED:
        refuse("it is encrypted", path)
    if info.compress_type not in _METHODS:
        refuse("it is packed by another method than deflate", path)
    extra = info.extra
    while len(extra) >= 4:  # noqa: PLR2004  # the tag and length of each field
        tag, length = struct.unpack_from("<HH", extra)
        if tag == _UNIX_EXTRA and length > _UNIX_EXTRA_FIXED:
            refuse("a link, and no file", path)
        if tag == 1:
            refuse("it is in the form for very large ones (zip64)", path)
        extra = extra[4 + length :]
