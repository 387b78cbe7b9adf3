"""Unpacking a skill's archive. It is untrusted, though the registry has made it (CASES S12).

No path of it is ever resolved by the system: every part is checked, and made by name in a directory
that is held open. What it says of its own sizes is not believed. All of this blocks.
"""

from __future__ import annotations

import os
import stat
import unicodedata
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from services.hands.bringing import beneath

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK: Final = 256 * 1024
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_FORBIDDEN: Final = frozenset({"Cc", "Cs"})
"""Control characters, and what stands for bytes that are no text."""
_ENCRYPTED: Final = 0x1
_FILE, _PROGRAM = 0o444, 0o555
_SKILL_FILE: Final = "SKILL.md"
_BROKEN: Final = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, ValueError, RecursionError),
    *(NotImplementedError, RuntimeError, OverflowError),
)


class SkillRefused(Exception):  # noqa: N818  # a state of the archive
    """The archive is not one that is unpacked; the text says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an archive may hold: more than any that the registry takes."""

    entries: int = 4000
    """Files and folders, also those that are nothing but a part of a path."""
    data: int = 64 << 20
    """Bytes, unpacked."""
    path: int = 1024
    """Bytes of a path."""
    depth: int = 64


def unpack(archive: IO[bytes], directory: int, bounds: Bounds) -> None:
    """Fills an empty directory, that is open, with what is in the archive's one folder.

    Files can be read by all, programs executed, nothing written. Raises `SkillRefused`, `OSError`.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > bounds.entries:
                raise SkillRefused("it has too many entries")
            _Unpacking(opened, directory, bounds).all(entries)
    except _BROKEN as error:
        raise SkillRefused(f"it is no archive that can be read: {error}") from error


class _Unpacking:
    def __init__(self, archive: zipfile.ZipFile, directory: int, bounds: Bounds) -> None:
        self._archive = archive
        self._directory = directory
        self._bounds = bounds
        self._left = bounds.data
        self._folder = ""
        self._made: set[tuple[str, ...]] = set()
        self._has_text = False

    def all(self, entries: Iterable[zipfile.ZipInfo]) -> None:
        for entry in entries:
            try:
                self._one(entry)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise SkillRefused(f"it has something twice: {_shown(entry)}") from error
        if not self._has_text:
            raise SkillRefused(f"it has no {_SKILL_FILE}")

    def _one(self, entry: zipfile.ZipInfo) -> None:
        parts = self._parts(entry)
        self._made.update(tuple(parts[:depth]) for depth in range(len(parts) + 1))
        if len(self._made) > self._bounds.entries:
            raise SkillRefused("it has too many files and folders")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        is_directory = entry.is_dir()
        if kind not in {0, stat.S_IFDIR if is_directory else stat.S_IFREG}:
            raise SkillRefused(f"it has something that is neither file nor folder: {_shown(entry)}")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise SkillRefused(f"it has an entry that cannot be read: {_shown(entry)}")
        if is_directory:
            with beneath.made(self._directory, parts):
                return
        *above, name = parts
        with beneath.made(self._directory, above) as place:
            self._file(entry, place, name)
        self._has_text = self._has_text or parts == [_SKILL_FILE]

    def _parts(self, entry: zipfile.ZipInfo) -> list[str]:
        """Where it belongs, below the one folder that everything is in."""
        # What the archive says, not what the library makes of it for this system.
        path = entry.orig_filename
        raw = path.encode("utf-8", "surrogateescape")
        parts = path.removesuffix("/").split("/")
        if len(raw) > self._bounds.path or len(parts) > self._bounds.depth:
            raise SkillRefused(f"it has a path that is too long: {_shown(entry)}")
        if "\\" in path or any(unicodedata.category(one) in _FORBIDDEN for one in path):
            raise SkillRefused(f"it has a path with a forbidden character: {_shown(entry)}")
        if any(part in {"", ".", ".."} for part in parts):
            raise SkillRefused(f"it has a path that leads elsewhere: {_shown(entry)}")
        self._folder = self._folder or parts[0]
        if parts[0] != self._folder or (len(parts) == 1 and not entry.is_dir()):
            raise SkillRefused(f"it has something beside its folder: {_shown(entry)}")
        return parts[1:]

    def _file(self, entry: zipfile.ZipInfo, place: int, name: str) -> None:
        descriptor = os.open(name, beneath.MAKE, 0o600, dir_fd=place)
        with os.fdopen(descriptor, "wb") as file, self._archive.open(entry) as packed:
            while piece := packed.read(_CHUNK):
                self._left -= len(piece)
                if self._left < 0:
                    raise SkillRefused("it is too large")
                file.write(piece)
            executable = entry.external_attr >> 16 & 0o111
            os.fchmod(file.fileno(), _PROGRAM if executable else _FILE)


def _shown(entry: zipfile.ZipInfo) -> str:
    with suppress(UnicodeError):
        return ascii(entry.orig_filename[:80])
    return "an entry"
