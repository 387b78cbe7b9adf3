"""S12 for skills: archives that do not mean well, unpacked by who has every right.

The registry makes the archives that it serves itself. The hands do not rely on that.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.hands.skills.archive import Bounds, SkillRefused, unpack
from tests.doubles.hands_registry import TEXT, archive, skill_archive

SMALL = Bounds(entries=20, data=1 << 20, path=200, depth=8)
FOLDER, LINK, PIPE, DEVICE = stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR


def unpacked(data: bytes, place: Path) -> None:
    place.mkdir()
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        unpack(io.BytesIO(data), directory, SMALL)
    finally:
        os.close(directory)


def test_s12_an_honest_skill_is_unpacked_with_its_programs_and_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    unpacked(skill_archive(), tmp_path / "skill")
    text, program = tmp_path / "skill/SKILL.md", tmp_path / "skill/scripts/add.sh"
    assert text.read_bytes() == TEXT
    assert stat.S_IMODE(text.stat().st_mode) == 0o444
    assert stat.S_IMODE(program.stat().st_mode) == 0o555
    assert stat.S_IMODE(program.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"x/../../evil": b""}, "leads elsewhere"),
        ({"../evil": b""}, "leads elsewhere"),
        ({"/etc/evil": b""}, "leads elsewhere"),
        ({"x//evil": b""}, "leads elsewhere"),
        ({"x/./evil": b""}, "leads elsewhere"),
        ({"y/evil": b""}, "beside its folder"),
        ({"evil": b""}, "beside its folder"),
        ({"x\\..\\evil": b""}, "forbidden character"),
        ({"x/a\nb": b""}, "forbidden character"),
        ({"x/a\x1b[2J": b""}, "forbidden character"),
        ({f"x/{'d/' * 9}evil": b""}, "too long"),
        ({f"x/{'e' * 300}": b""}, "too long"),
        ({"x/link": (LINK | 0o777, b"/etc/passwd")}, "neither file nor folder"),
        ({"x/way": (LINK | 0o777, b"/etc"), "x/way/evil": b""}, "neither file nor folder"),
        ({"x/pipe": (PIPE | 0o644, b"")}, "neither file nor folder"),
        ({"x/null": (DEVICE | 0o666, b"")}, "neither file nor folder"),
        ({"x/a": b"", "x/a/b": b""}, "twice"),
        ({"x/a/b": b"", "x/a": b""}, "twice"),
        ({"x/a/": (FOLDER | 0o755, b""), "x/a": b""}, "twice"),
        ({"x/a/": b""}, "neither file nor folder"),
        ({f"x/{number}": b"" for number in range(20)}, "too many"),
        ({f"x/{one}/a/b/c/d/e": b"" for one in range(4)}, "too many files and folders"),
        ({"x/bomb": bytes(2 << 20)}, "too large"),
        ({f"x/{number}": bytes(200_000) for number in range(6)}, "too large"),
    ],
)
def test_s12_what_leads_elsewhere_or_is_too_much_is_refused_with_a_reason(
    entries: Mapping[str, bytes | tuple[int, bytes]], why: str, tmp_path: Path
) -> None:
    with pytest.raises(SkillRefused, match=why):
        unpacked(archive({"x/SKILL.md": TEXT, **entries}), tmp_path / "skill")
    assert [path.name for path in tmp_path.iterdir()] == ["skill"]
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["x/skill.md", "x/deep/SKILL.md", "x/SKILL.md/file"])
def test_s12_an_archive_without_its_text_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SkillRefused, match=r"no SKILL\.md"):
        unpacked(archive({name: TEXT}), tmp_path / "skill")


def test_s12_the_same_path_twice_is_refused(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr("x/SKILL.md", TEXT)
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("x/SKILL.md", b"other")
    with pytest.raises(SkillRefused, match="twice"):
        unpacked(made.getvalue(), tmp_path / "skill")


def test_s12_sizes_are_counted_and_not_believed(tmp_path: Path) -> None:
    honest = archive({"x/SKILL.md": TEXT, "x/bomb": bytes(2 << 20)})
    size = struct.pack("<L", 2 << 20)
    assert honest.count(size) == 2
    with pytest.raises(SkillRefused):
        unpacked(honest.replace(size, struct.pack("<L", 5)), tmp_path / "skill")
    held = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert held <= SMALL.data


def test_s12_entries_that_share_their_bytes_are_counted_each(tmp_path: Path) -> None:
    """A quine of the kind "better zip bomb": many names for one stream."""
    data = archive({"x/SKILL.md": TEXT, "x/a": bytes(400_000)})
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        at = opened.getinfo("x/a").header_offset
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr("x/SKILL.md", TEXT)
        for number in range(5):
            opened.writestr(zipfile.ZipInfo(f"x/{number}"), b"")
        for info in opened.infolist()[2:]:
            info.header_offset = at  # the directory at the end says so
    with pytest.raises(SkillRefused):
        unpacked(made.getvalue(), tmp_path / "skill")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 1 << 16), value=st.binary(min_size=1, max_size=4), cut=st.booleans())
def test_s12_any_damage_is_refused_or_stays_within_the_folder(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: bytes, cut: bool
) -> None:
    honest = skill_archive()
    at %= len(honest)
    damaged = honest[:at] if cut else honest[:at] + value + honest[at + len(value) :]
    place = tmp_path_factory.mktemp("damaged", numbered=True)
    try:
        unpacked(damaged, place / "skill")
    except SkillRefused:
        pass
    finally:
        assert [entry.name for entry in place.iterdir()] == ["skill"]
        assert not any(path.is_symlink() for path in place.rglob("*"))
