"""Paths of an upload: those that lie in its folder wherever it is unpacked, each once."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from services.registry.domain.skills.refusals import refuse, shown

if TYPE_CHECKING:
    from services.registry.domain.skills.limits import SkillLimits

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_NO_CHARACTERS: Final = frozenset(("Cc", "Cs", "Zl", "Zp"))


class Paths:
    """The paths that were seen so far, no two of which mean the same anywhere.

    Names that differ by case or by Unicode normalisation alone are one file on many systems.
    """

    def __init__(self, limits: SkillLimits) -> None:
        self._limits = limits
        self._files: dict[str, str] = {}
        self._directories: dict[str, str] = {}

    def add(self, path: str, *, directory: bool = False) -> tuple[str, ...]:
        """The parts of one more path. Raises INVALID_ARGUMENT.

        Directories count as files do, also those that a path leads through and nothing names.
        """
        parts = self._split(path)
        key = ""
        for depth, part in enumerate(parts, 1):
            key = f"{key}/{_folded(part)}" if key else _folded(part)
            spelled = "/".join(parts[:depth])
            if depth == len(parts) and not directory:
                self._add_file(key, spelled, path)
                continue
            if key in self._files:
                refuse(f"{shown(self._files[key])} is a file, and a directory here", path)
            known = self._directories.setdefault(key, spelled)
            if known != spelled:
                refuse(f"its directory is {shown(known)} elsewhere, which is the same", path)
        if len(self._files) + len(self._directories) > self._limits.entries:
            refuse(f"with it there are more than {self._limits.entries} files and folders", path)
        return parts

    def _add_file(self, key: str, spelled: str, path: str) -> None:
        if key in self._directories:
            refuse("it is a file here, and a directory elsewhere", path)
        if key in self._files:
            refuse(f"it is there already, as {shown(self._files[key])}", path)
        self._files[key] = spelled

    def _split(self, path: str) -> tuple[str, ...]:
        limits = self._limits
        if path.startswith("/"):
            refuse("an absolute path", path)
        if "\\" in path:
            refuse("a backslash in its path", path)
        if any(unicodedata.category(character) in _NO_CHARACTERS for character in path):
            refuse("a control character in its path", path)
        if len(path.encode()) > limits.path_bytes:
            refuse(f"its path has more than {limits.path_bytes} bytes", path)
        parts = tuple(path.split("/"))
        if len(parts) > limits.depth:
            refuse(f"it is more than {limits.depth} directories deep", path)
        for part in parts:
            if part in ("", ".", ".."):
                refuse(f"{shown(part)} as a part of its path", path)
            if _DRIVE.match(part):
                refuse("a drive letter in its path", path)
            if len(part.encode()) > limits.part_bytes:
                refuse(f"a part of its path has more than {limits.part_bytes} bytes", path)
        return parts


def _folded(part: str) -> str:
    """Equal for parts that some file system takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", part).casefold())
