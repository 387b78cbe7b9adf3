"""Uploads of skills, sound and hostile, without any wire."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drover.skill.v1.skill_service_pb2 import SkillPart
from services.registry.domain.skills.limits import SkillLimits
from services.registry.domain.skills.packing import packed
from services.registry.domain.skills.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from catalogue.skill_text import SkillText

LIMITS = SkillLimits()
SKILL_MD = b"---\nname: sums\ndescription: Adds up.\n---\n\nRun scripts/add.\n"
_CENTRAL = b"PK\1\2"


@dataclass(frozen=True)
class Made:
    """The archive that was made of an upload."""

    text: SkillText
    sha256: str
    content: bytes

    def files(self) -> dict[str, bytes]:
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            assert archive.testzip() is None
            return {name: archive.read(name) for name in archive.namelist()}

    def executable(self) -> set[str]:
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            modes = {one.filename: one.external_attr >> 16 for one in archive.infolist()}
        assert set(modes.values()) <= {0o100644, 0o100755}
        return {name for name, mode in modes.items() if mode & 0o111}


def pack(parts: Iterable[SkillPart], limits: SkillLimits = LIMITS) -> Made:
    with Upload(limits) as upload:
        for part in parts:
            upload.take(part)
        with packed(upload, limits) as made:
            made.file.seek(0)
            content = made.file.read()
            assert len(content) == made.size
            return Made(made.text, made.sha256, content)


def folder(files: Mapping[str, bytes], executable: Iterable[str] = ()) -> list[SkillPart]:
    """A folder, each file in one piece."""
    return [
        SkillPart(path=path, data=data, executable=path in set(executable))
        for path, data in files.items()
    ]


def archive(content: bytes, name: str = "sums.zip", piece: int = 50_000) -> list[SkillPart]:
    """A zip archive in pieces."""
    parts = [SkillPart(data=content[at : at + piece]) for at in range(0, len(content), piece)]
    return [SkillPart(path=name), *parts]


def entry(
    name: str, mode: int = 0o100644, *, system: int = 3, extra: bytes = b""
) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.create_system, info.extra = mode << 16, system, extra
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def zipped(
    *entries: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip archive of a sound SKILL.md and of these."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        target.writestr(entry("sums/SKILL.md"), SKILL_MD)
        for info, content in entries:
            target.writestr(entry(info) if isinstance(info, str) else info, content)
    return made.getvalue()


def patched(content: bytes, name: str, **fields: int) -> bytes:
    """The archive, where the central directory says something else of the entry `name`.

    `fields` are flags, method, packed, size, attributes and offset.
    """
    places = {
        "flags": (8, "<H"),
        "method": (10, "<H"),
        "packed": (20, "<L"),
        "size": (24, "<L"),
        "attributes": (38, "<L"),
        "offset": (42, "<L"),
    }
    changed = bytearray(content)
    at = content.rindex(name.encode()) - 46
    assert content[at : at + 4] == _CENTRAL
    for field, value in fields.items():
        place, form = places[field]
        struct.pack_into(form, changed, at + place, value)
    return bytes(changed)
