"""A folder with a SKILL.md, as the zip archive in which it is uploaded."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from catalogue.skill_text import FILE, MAX_BYTES, BadSkillText, SkillText, read_skill_text
from cli.errors import fail
from cli.terminal import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

LEFT_OUT: Final = (".git", "__pycache__", ".DS_Store")
"""Names of files and folders that are no part of any skill."""

_MOST: Final = 64 << 20
"""Bytes: no installation can be told to take more, so there is no need to read them."""
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3


def is_text(name: str) -> bool:
    """Whether what the system calls by that name can be called so elsewhere."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_text(folder: Path) -> SkillText:
    """What the SKILL.md says. Ends the command for what is no skill."""
    try:
        with (folder / FILE).open("rb") as file:
            head = file.read(MAX_BYTES)
    except FileNotFoundError:
        fail(f"{escaped(str(folder))} has no {FILE} at its root: that makes a folder a skill")
    try:
        return read_skill_text(head, folder.resolve().name)
    except BadSkillText as error:
        fail(f"{escaped(str(folder / FILE))}: {error}")


def pack(folder: Path, name: str, into: IO[bytes]) -> None:
    """Writes the folder's files as a zip archive. Ends the command for what cannot be in one.

    Nothing is compressed: what is uploaded is as long as what is shown of its progress, and no
    file of many equal bytes looks like one that was made to fill a disk.
    """
    left = _MOST
    with zipfile.ZipFile(into, "w", zipfile.ZIP_STORED) as archive:
        for path in _files(folder):
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                left -= found.st_size
                if left < 0:
                    fail(
                        f"{escaped(str(folder))} has more than {_MOST >> 20} MiB: that is no skill"
                    )
                inside = path.relative_to(folder).as_posix()
                info = zipfile.ZipInfo(f"{name}/{inside}", _NO_TIME)
                mode = 0o755 if found.st_mode & 0o111 else 0o644
                info.external_attr, info.create_system = (stat.S_IFREG | mode) << 16, _UNIX
                with archive.open(info, "w") as entry:
                    while piece := file.read(1 << 20):
                        entry.write(piece)


def _files(folder: Path) -> Iterator[Path]:
    """All files, in order. A link to a file of the folder is that file."""
    root = folder.resolve()
    for directory, folders, names in os.walk(folder, onerror=_failed):
        here = Path(directory)
        for name in sorted((*folders, *names)):
            if name not in LEFT_OUT and not is_text(name):
                fail(f"{escaped(str(here / name))} has a name that is not UTF-8: a skill has none")
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in folders:
            if (here / name).is_symlink():
                fail(f"{escaped(str(here / name))} is a link to a folder: a skill has none")
        for path in (here / name for name in sorted(names) if name not in LEFT_OUT):
            target = path.resolve()
            if not target.is_relative_to(root):
                fail(f"{escaped(str(path))} is a link to what is not in the folder")
            if not target.is_file():
                fail(f"{escaped(str(path))} is no file")
            yield path


def _failed(error: OSError) -> None:
    raise error
