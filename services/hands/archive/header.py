"""The part of the tar format that checkpoints are made of (POSIX.1-2001 pax, GNU sparse 1.0).

Any tar program can unpack them. The standard library makes and reads the headers' blocks; what
stands between them is read here, for the library would take names and sizes of any length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from tarfile import DIRTYPE, LNKTYPE, PAX_FORMAT, REGTYPE, SYMTYPE, XHDTYPE, HeaderError, TarInfo
from typing import TYPE_CHECKING, Final

from services.hands.archive.bounds import MAX_PATH, ArchiveRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
MANIFEST: Final = b".drover-checkpoint"
"""The first entry of every archive: a file that says which format this is."""

FILE, DIRECTORY, SYMLINK, HARD_LINK = REGTYPE, DIRTYPE, SYMTYPE, LNKTYPE
_KINDS: Final = frozenset({FILE, DIRECTORY, SYMLINK, HARD_LINK})
_SECOND: Final = 10**9
_MAX_RECORDS: Final = 3 * MAX_PATH
_RECORD: Final = re.compile(rb"([0-9]{1,7}) ")
_TIME: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?")
_SPARSE: Final = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
_SPARSE_NAME: Final = "GNUSparseFile.0/file"


@dataclass(frozen=True, slots=True)
class Header:
    """One entry. `size` counts what follows it, `real` the file with its holes, if it has any."""

    kind: bytes
    path: bytes
    size: int = 0
    mode: int = 0o600
    changed: int = 0
    """Nanoseconds since the epoch."""
    target: bytes = b""
    real: int | None = None


def padding(size: int) -> int:
    """How many bytes fill up the last block."""
    return -size % BLOCK


def encode(header: Header) -> bytes:
    """A header's blocks."""
    info = TarInfo(_text(header.path))
    info.type, info.size = header.kind, header.size
    info.mode, info.linkname = header.mode & 0o777, _text(header.target)
    info.mtime = max(header.changed // _SECOND, 0)
    info.pax_headers = {"mtime": _written(header.changed)}
    if header.real is not None:
        info.name = _SPARSE_NAME
        info.pax_headers |= {
            **_SPARSE,
            "GNU.sparse.name": _text(header.path),
            "GNU.sparse.realsize": str(header.real),
        }
    return info.tobuf(PAX_FORMAT, "utf-8", "surrogateescape")


@dataclass(slots=True)
class Headers:
    """Reads headers, by `read`, which answers just as many bytes as it is asked for."""

    read: Callable[[int], bytes]
    _records: dict[str, str] = field(default_factory=dict)

    def next(self) -> Header | None:
        """The next entry; None behind the last. Raises `ArchiveRefused`."""
        info = self._block()
        if info is None:
            return None
        records: Mapping[str, str] = {}
        if info.type == XHDTYPE:
            if not 0 < info.size <= _MAX_RECORDS:
                raise ArchiveRefused("a header in it is too long")
            body = self.read(info.size + padding(info.size))
            records, info = _parsed(body[: info.size]), self._block()
        if info is None or info.type not in _KINDS:
            raise ArchiveRefused("it has an entry of a kind that is never written")
        return _header(info, records)

    def _block(self) -> TarInfo | None:
        block = self.read(BLOCK)
        if not any(block):
            if any(self.read(BLOCK)):
                raise ArchiveRefused("its end is damaged")
            return None
        try:
            return TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except HeaderError as error:
            raise ArchiveRefused("a header in it is damaged") from error


def _header(info: TarInfo, records: Mapping[str, str]) -> Header:
    name, real = records.get("path", info.name), None
    if "GNU.sparse.major" in records:
        if info.type != FILE or any(records.get(key) != value for key, value in _SPARSE.items()):
            raise ArchiveRefused("it has a sparse file of an unknown form")
        name = records.get("GNU.sparse.name", "")
        real = _number(records.get("GNU.sparse.realsize", ""))
    size = _number(records["size"]) if "size" in records else info.size
    if size < 0 or (size and info.type != FILE):
        raise ArchiveRefused("an entry in it has an impossible size")
    path = _bytes(name)
    if info.type == DIRECTORY:
        path = path.removesuffix(b"/")
    target = _bytes(records.get("linkpath", info.linkname))
    if len(path) > MAX_PATH or len(target) > MAX_PATH:
        raise ArchiveRefused("a path in it is too long")
    changed = _time(records["mtime"]) if "mtime" in records else int(info.mtime) * _SECOND
    return Header(info.type, path, size, info.mode & 0o777, changed, target, real)


def _parsed(body: bytes) -> dict[str, str]:
    records: dict[str, str] = {}
    at = 0
    while at < len(body):
        length = _RECORD.match(body, at)
        end = at + int(length[1]) if length else 0
        record = body[length.end() : end] if length else b""
        key, equals, value = record.partition(b"=")
        if not equals or not record.endswith(b"\n") or end > len(body):
            raise ArchiveRefused("a header in it is damaged")
        records[_text(key)] = _text(value[:-1])
        at = end
    return records


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):  # noqa: PLR2004  # of 64 bits
        raise ArchiveRefused("a number in it is none")
    return int(text)


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ArchiveRefused("a time in it is none")
    ahead = int(found[2]) * _SECOND + int((found[3] or "").ljust(9, "0"))
    return -ahead if found[1] else ahead


def _written(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(nanoseconds), _SECOND)
    return f"{'-' if nanoseconds < 0 else ''}{seconds}.{rest:09}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
