"""S12 for skills: uploads made to reach what they should not, or never to end. Each is refused."""

from __future__ import annotations

import hashlib
import io
import stat
import struct
import zipfile
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chassis.errors import DroverError, Reason
from drover.skill.v1.skill_service_pb2 import SkillPart
from tests.doubles.skill_uploads import (
    LIMITS,
    SKILL_MD,
    archive,
    entry,
    folder,
    pack,
    patched,
    zipped,
)

KIB = 1 << 10
MIB = 1 << 20
SMALL = replace(LIMITS, max_bytes=MIB, ratio_from=64 * KIB)
NOISE = b"".join(hashlib.sha256(bytes([at % 256, at // 256])).digest() for at in range(2048))
LINK = struct.pack("<HH", 0x0D, 18) + bytes(12) + b"/etc/x"
ZIP64 = struct.pack("<HHQQ", 1, 16, 1 << 52, 1 << 52)
GOOD = zipped(("sums/a", b"data"))


def refusal(parts: list[SkillPart]) -> DroverError:
    with pytest.raises(DroverError) as refused:
        pack(parts, SMALL)
    return refused.value


PATHS = {
    "above": ("sums/../../etc/passwd", "'..' as a part"),
    "above by itself": ("..", "'..' as a part"),
    "here": ("sums/./a", "'.' as a part"),
    "nothing": ("sums//a", "'' as a part"),
    "absolute": ("/etc/passwd", "an absolute path"),
    "backslash": ("sums\\..\\a", "a backslash"),
    "drive": ("C:/windows/a", "a drive letter"),
    "drive below": ("sums/c:a", "a drive letter"),
    "newline": ("sums/a\nb", "a control character"),
    "escape": ("sums/\x1b[2J", "a control character"),
    "separator": ("sums/\u2028a", "a control character"),
    "long": ("sums/" + "a/" * 300 + "a", "more than 512 bytes"),
    "deep": ("sums/" + "a/" * 31 + "a", "more than 32 directories deep"),
    "long part": ("sums/" + "é" * 130, "more than 255 bytes"),
    "twice": ("sums/SKILL.md", "is there already"),
    "twice by case": ("sums/skill.MD", "is there already"),
    "beneath a file": ("sums/SKILL.md/a", "is a file, and a directory here"),
    "beside the folder": ("other/a", "not in the folder 'sums'"),
    "no folder": ("a", "in no folder"),
    "a folder twice by case": ("SUMS/a", "is 'sums' elsewhere"),
}


@pytest.mark.parametrize("form", ["folder", "archive"])
@pytest.mark.parametrize(("path", "reason"), PATHS.values(), ids=PATHS.keys())
def test_a_path_that_leads_elsewhere_is_refused(path: str, reason: str, form: str) -> None:
    parts = archive(zipped((path, b"data")))
    if form == "folder":
        parts = [*folder({"sums/SKILL.md": SKILL_MD}), SkillPart(path=path, data=b"data")]
    refused = refusal(parts)
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert refused.message.startswith("files: '")
    assert reason in refused.message
    assert refused.message.isprintable()


def test_names_that_only_unicode_tells_apart_are_one_name() -> None:
    for one, other in (("é", "e\u0301"), ("ﬁ", "fi"), ("ß", "SS"), ("Ⅸ", "ix")):
        files = {"sums/SKILL.md": SKILL_MD, f"sums/{one}": b"", f"sums/{other}": b""}
        assert "is there already" in refusal(folder(files)).message
        files = {"sums/SKILL.md": SKILL_MD, f"sums/{one}/a": b"", f"sums/{other}/b": b""}
        assert "which is the same" in refusal(folder(files)).message


def end_record(content: bytes, **fields: int) -> bytes:
    """The archive with another end: `here`, `count`, `length`, `start`, `disk`."""
    names = ("disk", "first", "here", "count", "length", "start", "comment")
    values = dict(zip(names, struct.unpack("<4H2LH", content[-18:]), strict=True)) | fields
    return content[:-18] + struct.pack("<4H2LH", *values.values())


def overlapping() -> bytes:
    """Two entries with the bytes of one."""
    content = zipped(("sums/a", b"data"), ("sums/b", b"data"))
    with zipfile.ZipFile(io.BytesIO(content)) as read:
        return patched(content, "sums/b", offset=read.getinfo("sums/a").header_offset)


def nested() -> bytes:
    """An entry whose bytes are those of others, as archives have that unpack without end."""
    content = zipped(("sums/a", NOISE), ("sums/b", NOISE))
    return patched(content, "sums/a", packed=2 * len(NOISE), size=2 * len(NOISE))


def stored(name: str) -> zipfile.ZipInfo:
    info = entry(name)
    info.compress_type = zipfile.ZIP_STORED
    return info


def prefixed(content: bytes) -> bytes:
    start = struct.unpack("<L", content[-6:-2])[0] + 8
    moved = zipfile.ZipFile(io.BytesIO(b"PKprefix" + content)).infolist()
    for info in moved:
        content = patched(content, info.filename, offset=info.header_offset)
    return b"PKprefix" + end_record(content, start=start)


ARCHIVES = {
    "symbolic link": (zipped((entry("sums/a", stat.S_IFLNK | 0o777), b"/etc")), "a symbolic link"),
    "beneath a link": (
        zipped((entry("sums/a", stat.S_IFLNK | 0o777), b"/etc"), ("sums/a/passwd", b"")),
        "a symbolic link",
    ),
    "hard link": (zipped((entry("sums/a", extra=LINK), b"")), "a link"),
    "device": (zipped((entry("sums/a", stat.S_IFBLK | 0o666), b"")), "a device"),
    "terminal": (zipped((entry("sums/a", stat.S_IFCHR | 0o666), b"")), "a device"),
    "pipe": (zipped((entry("sums/a", stat.S_IFIFO | 0o666), b"")), "a pipe"),
    "socket": (zipped((entry("sums/a", stat.S_IFSOCK | 0o666), b"")), "a socket"),
    "encrypted": (patched(GOOD, "sums/a", flags=1), "it is encrypted"),
    "unknown method": (patched(GOOD, "sums/a", method=99), "another method"),
    "NUL": (GOOD.replace(b"sums/a", b"sums\0a"), "a control character"),
    "not UTF-8": (GOOD.replace(b"sums/a", b"sums/\xff"), "not UTF-8"),
    "directory with content": (zipped(("sums/a/", b"data")), "a directory that has content"),
    "overlapping": (overlapping(), "lies over another entry"),
    "nested": (nested(), "lies over another entry"),
    "elsewhere": (patched(GOOD, "sums/a", offset=7), "lies over another entry"),
    "beyond": (patched(GOOD, "sums/a", packed=1 << 30), "longer than the zip archive"),
    "far beyond": (patched(GOOD, "sums/a", offset=1 << 30), "not where the zip archive says"),
    "prefixed": (prefixed(GOOD), "something precedes"),
    "suffixed": (GOOD + b"suffix", "something follows"),
    "a wrong check sum": (
        zipped((stored("sums/a"), NOISE)).replace(NOISE, NOISE[::-1]),
        "it cannot be unpacked",
    ),
    "a lie of 4 bytes": (patched(GOOD, "sums/a", size=8), "it cannot be unpacked"),
    "a shorter lie": (patched(GOOD, "sums/a", size=2), "it cannot be unpacked"),
    "sparse giant": (patched(GOOD, "sums/a", size=0xFFFF_FFFE), "more than 1048576 bytes"),
    "zip64 giant": (zipped((entry("sums/a", extra=ZIP64), b"")), "zip64"),
    "zip64": (GOOD[:-22] + b"PK\6\7" + bytes(16) + GOOD[-22:], "zip64"),
    "one of several": (end_record(GOOD, disk=1), "one part of several"),
    "a million entries": (end_record(GOOD, here=65535, count=65535), "65535 entries, more than"),
    "more entries than said": (end_record(GOOD, here=1, count=1), "not as many entries"),
    "no entries": (end_record(GOOD, here=0, count=0, length=0), "precedes"),
    "torn": (GOOD[:-1], "no end"),
    "half": (GOOD[: len(GOOD) // 2], "no end"),
    "nothing but an end": (GOOD[-22:], "precedes"),
    "empty": (b"PK\5\6" + bytes(18), "there is no SKILL.md"),
    "no archive": (b"\x1f\x8b" + bytes(100), "no zip archive"),
}


@pytest.mark.parametrize(("content", "reason"), ARCHIVES.values(), ids=ARCHIVES.keys())
def test_an_archive_that_is_not_what_it_says_is_refused(content: bytes, reason: str) -> None:
    refused = refusal(archive(content))
    assert refused.reason in {Reason.INVALID_ARGUMENT, Reason.REQUEST_TOO_LARGE}
    assert refused.message.startswith("files: ")
    assert reason in refused.message


def test_other_methods_than_deflate_are_refused() -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        info = entry("sums/a")
        info.compress_type = method
        assert "another method" in refusal(archive(zipped((info, b"data")))).message


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    told = refusal(archive(zipped(("sums/a", bytes(MIB - 200)))))
    assert "more than 200 times its size" in told.message
    both = zipped(("sums/a", NOISE * 10), ("sums/b", NOISE * 10))
    told = refusal(archive(both))
    assert (told.reason, "'sums/b'" in told.message) == (Reason.REQUEST_TOO_LARGE, True)


def test_a_bomb_that_says_it_is_small_is_not_unpacked_either() -> None:
    content = patched(zipped(("sums/a", bytes(5 * MIB))), "sums/a", size=10)
    assert "it cannot be unpacked" in refusal(archive(content)).message


def test_folders_count_as_files_do_though_nothing_but_a_path_names_them() -> None:
    few = replace(SMALL, entries=8)  # of which are the folder and its SKILL.md
    for form in (folder, lambda files: archive(zipped(*list(files.items())[1:]))):
        paths = ("sums/a/b/c/d", "sums/a/b/c/e", "sums/f")
        files = {"sums/SKILL.md": SKILL_MD} | dict.fromkeys(paths, b"")
        assert len(pack(form(files), few).files()) == 4
        with pytest.raises(DroverError, match=r"'sums/g/h'.*more than 8 files and folders"):
            pack(form(files | {"sums/g/h": b""}), few)


def test_more_files_than_a_skill_has_are_refused_as_they_come() -> None:
    few = replace(SMALL, entries=3)
    files = {"sums/SKILL.md": SKILL_MD} | {f"sums/{number}": b"" for number in range(3)}
    with pytest.raises(DroverError, match=r"'sums/2': more than 3"):
        pack(folder(files), few)
    with pytest.raises(DroverError, match="4 entries, more than 3"):
        pack(archive(zipped(*((f"sums/{number}", b"") for number in range(3)))), few)


def test_an_upload_without_end_is_refused_as_it_comes() -> None:
    taken = 0

    def endless() -> list[SkillPart]:
        nonlocal taken
        yield SkillPart(path="sums/SKILL.md", data=SKILL_MD)
        yield SkillPart(path="sums/data")
        while True:
            taken += 1
            yield SkillPart(data=NOISE)

    with pytest.raises(DroverError) as refused:
        pack(endless(), SMALL)
    assert refused.value.reason is Reason.REQUEST_TOO_LARGE
    assert taken <= SMALL.upload_bytes // len(NOISE) + 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_an_archive_that_was_changed_anywhere_is_packed_or_refused(data: st.DataObject) -> None:
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    with suppress(DroverError):
        made = pack(archive(bytes(content)), SMALL)
        assert all(name.startswith(f"{made.text.name}/") for name in made.files())
