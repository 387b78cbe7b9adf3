"""Making a skill's archive of what was uploaded: the same one of the same files, always.

It has the skill's name as its one folder, the files in the order of their paths, no times, and of
their permissions only whether they may be executed. Nothing that was uploaded is in it as it came,
so what reads it meets no archive but our own. All of this blocks: it is done off the loop.
"""

from __future__ import annotations

import hashlib
import stat
import zipfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Final

from catalogue.skill_text import FILE, MAX_BYTES, BadSkillText, SkillText, read_skill_text
from services.registry.domain.skills.archive import open_archive, unpacking
from services.registry.domain.skills.entry import Entry
from services.registry.domain.skills.paths import Paths
from services.registry.domain.skills.refusals import refuse, shown, too_large
from services.registry.domain.skills.upload import IN_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.registry.domain.skills.limits import SkillLimits
    from services.registry.domain.skills.upload import Upload

_PIECE: Final = 256 * 1024
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_INTERPRETED: Final = b"#!"


@dataclass(frozen=True, slots=True)
class Packed:
    """A skill's archive, and what its SKILL.md says."""

    text: SkillText
    sha256: str
    size: int
    file: IO[bytes]


@contextmanager
def packed(upload: Upload, limits: SkillLimits) -> Iterator[Packed]:
    """The archive of an upload that is complete.

    Raises INVALID_ARGUMENT, naming the entry by which it is no skill, and REQUEST_TOO_LARGE.
    """
    with ExitStack() as stack:
        source = upload.archive()
        if source is None:
            entries, fallback = list(_received(upload, limits)), ""
        else:
            opened = open_archive(upload.spool, source.size, limits)
            entries = stack.enter_context(opened)
            fallback = PurePosixPath(source.path).stem
        root = _root(entries, may_be_bare=source is not None)
        depth = 0 if root is None else 1
        text = _text(entries, depth, fallback if root is None else root)
        made = stack.enter_context(SpooledTemporaryFile(IN_MEMORY))
        _write(made, text.name, entries, depth, limits)
        yield Packed(text, _digest(made), made.tell(), made)


def _received(upload: Upload, limits: SkillLimits) -> Iterator[Entry]:
    paths = Paths(limits)
    for file in upload.files:
        executable = True if file.executable else None
        opened = partial(upload.open, file)
        yield Entry(file.path, paths.add(file.path), file.size, executable, opened)


def _root(entries: list[Entry], *, may_be_bare: bool) -> str | None:
    """The one folder that all files are in; `None` for those of an archive that are in none.

    Leaves out of `entries` what macOS adds to folders and archives by itself.
    """
    entries[:] = [
        one for one in entries if one.parts[-1] != ".DS_Store" and one.parts[0] != "__MACOSX"
    ]
    if may_be_bare and any(one.parts == (FILE,) for one in entries):
        return None
    root: str | None = None
    for one in entries:
        if len(one.parts) == 1:
            refuse(f"it is in no folder, and there is no {FILE} beside it", one.path)
        root = root or one.parts[0]
        if one.parts[0] != root:
            refuse(f"it is not in the folder {shown(root)}, as what precedes it", one.path)
    if root is None:
        refuse(f"there is no {FILE}")
    return root


def _text(entries: Sequence[Entry], depth: int, folder: str) -> SkillText:
    for one in entries:
        if one.parts[depth:] == (FILE,):
            break
    else:
        near = [one.path for one in entries if one.parts[-1].lower() == FILE.lower()]
        found = f"; found {shown(near[0])}" if near else ""
        refuse(f"there is no {FILE} at the root of the folder{found}")
    with unpacking(one.path), one.open() as file:
        head = file.read(MAX_BYTES)
    try:
        return read_skill_text(head, folder)
    except BadSkillText as error:
        refuse(str(error), one.path)


def _write(
    made: IO[bytes], name: str, entries: Sequence[Entry], depth: int, limits: SkillLimits
) -> None:
    left = limits.max_bytes
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(entries, key=lambda one: one.parts):
            left -= one.size
            if left < 0:
                too_large(limits.max_bytes, one.path)
            info = zipfile.ZipInfo("/".join((name, *one.parts[depth:])), _NO_TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, _UNIX
            with unpacking(one.path):
                _copy(one, archive, info)


def _copy(one: Entry, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Raises `BadZipFile` for a file that has another size than it said."""
    read, interpreted = 0, False
    with one.open() as source, archive.open(info, "w") as target:
        while piece := source.read(_PIECE):
            if not read:
                interpreted = piece.startswith(_INTERPRETED)
            read += len(piece)
            if read > one.size:
                break
            target.write(piece)
    if read != one.size:
        raise zipfile.BadZipFile
    executable = interpreted if one.executable is None else one.executable
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16


def _digest(file: IO[bytes]) -> str:
    """SHA-256 of a file that was written; its position is the end then."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()
