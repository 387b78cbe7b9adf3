"""Volumes as archives and back, in this process."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.hands.archive import tree
from services.hands.archive.bounds import BROUGHT, MAX_EXTENTS, PARTS, ArchiveRefused, Bounds
from services.hands.archive.extents import extents
from services.hands.archive.header import FILE, Header, Headers, encode
from services.hands.archive.pack import Packer
from services.hands.archive.tree import LeftOut, fingerprint
from services.hands.archive.unpack import Unpacker
from tests.doubles import odd_tree

WIDE = (100_000, 1 << 30)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def packed(root: Path, bounds: tuple[int, int] = WIDE) -> tuple[bytes, LeftOut]:
    archive = io.BytesIO()
    packer = Packer(archive.write, Bounds(*bounds))
    with opened(root) as directory:
        packer.pack(directory)
    return archive.getvalue(), packer.left_out


def unpacked(archive: bytes, root: Path, bounds: tuple[int, int] = WIDE) -> None:
    root.mkdir(exist_ok=True)
    with opened(root) as directory:
        Unpacker(io.BytesIO(archive).read, Bounds(*bounds)).unpack(directory)


def looks(root: Path) -> str:
    with opened(root) as directory:
        return fingerprint(directory, Bounds(*WIDE))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    for part in PARTS:
        (root / part).mkdir(parents=True)
    return root


def test_odd_tree_is_the_same_afterwards(tmp_path: Path) -> None:
    odd_tree.make(tmp_path / "volume")
    archive, left_out = packed(tmp_path / "volume")
    unpacked(archive, tmp_path / "copy")
    assert not left_out.kinds
    assert odd_tree.look(tmp_path / "copy") == odd_tree.look(tmp_path / "volume")


def test_what_is_brought_in_is_in_no_archive_and_its_places_are_there_again(
    volume: Path, tmp_path: Path
) -> None:
    for part in BROUGHT:
        (volume / part).mkdir()
        (volume / part / "brought").touch()
    (volume / "outputs" / "left").touch()
    unpacked(packed(volume)[0], tmp_path / "copy")
    there = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")
    }
    assert there == {*PARTS, *BROUGHT, "outputs/left"}


def test_archive_of_an_earlier_release_is_unpacked_with_its_uploads(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (volume / "uploads").mkdir()
    (volume / "uploads" / "data").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(tree, "PARTS", ("workspace", "uploads", "outputs", "home", "tool_outputs"))
        archive, _ = packed(volume)
    unpacked(archive, tmp_path / "copy")
    assert (tmp_path / "copy/uploads/data").read_text() == "old"


def test_holes_stay_holes(tmp_path: Path) -> None:
    odd_tree.make(tmp_path / "volume")
    archive, _ = packed(tmp_path / "volume")
    unpacked(archive, tmp_path / "copy")
    for name in ("sparse", "hole"):
        copy = (tmp_path / "copy" / "workspace" / name).stat()
        assert copy.st_blocks == (tmp_path / "volume" / "workspace" / name).stat().st_blocks


def test_any_tar_program_can_unpack_it(tmp_path: Path) -> None:
    odd_tree.make(tmp_path / "volume")
    archive, _ = packed(tmp_path / "volume")
    (tmp_path / "copy").mkdir()
    subprocess.run(
        ["tar", "--extract", "--gzip", "--preserve-permissions", "--warning=no-unknown-keyword"],
        cwd=tmp_path / "copy",
        input=archive,
        check=True,
    )
    assert odd_tree.look(tmp_path / "copy") == odd_tree.look(tmp_path / "volume")


def test_rights_of_others_are_not_restored(volume: Path, tmp_path: Path) -> None:
    program = volume / "workspace" / "program"
    program.touch()
    program.chmod(0o6755)
    (volume / "workspace" / "shared").mkdir()
    (volume / "workspace" / "shared").chmod(0o3777)
    archive, _ = packed(volume)
    unpacked(archive, tmp_path / "copy")
    modes = [
        (tmp_path / "copy" / "workspace" / name).stat().st_mode & 0o7777
        for name in ("program", "shared")
    ]
    assert modes == [0o755, 0o777]
    with tarfile.open(fileobj=io.BytesIO(archive)) as read:
        assert read.getmember("workspace/program").mode == 0o755


def test_what_is_no_file_is_left_out_and_told(volume: Path) -> None:
    os.mkfifo(volume / "workspace" / "pipe")
    with suppress(PermissionError):
        os.mknod(volume / "workspace" / "zero", 0o20666, os.makedev(1, 5))
    _, left_out = packed(volume)
    assert left_out.kinds["pipe"] == 1
    assert "workspace/pipe" in left_out.names
    assert left_out.kinds["device"] == (os.geteuid() == 0)


def test_fingerprint_is_another_when_anything_is(volume: Path) -> None:
    file = volume / "workspace" / "file"
    seen = [looks(volume)]

    def changed() -> bool:
        seen.append(looks(volume))
        return seen[-1] not in seen[:-1]

    file.write_text("one")
    assert changed()
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # who hides it does not
    assert changed()
    file.chmod(0o700)
    assert changed()
    (volume / "workspace" / "link").symlink_to("a")
    assert changed()
    file.rename(volume / "workspace" / "renamed")
    assert changed()
    assert not changed()


def test_looking_at_what_is_locked_changes_nothing(tmp_path: Path) -> None:
    odd_tree.make(tmp_path / "volume")
    before = odd_tree.look(tmp_path / "volume")
    assert looks(tmp_path / "volume") == looks(tmp_path / "volume")
    packed(tmp_path / "volume")
    assert odd_tree.look(tmp_path / "volume") == before


@pytest.mark.parametrize(
    ("bounds", "why"), [((8, 1 << 20), "too many files"), ((100, 4999), "too large")]
)
def test_bounds_hold_both_ways(
    volume: Path, tmp_path: Path, bounds: tuple[int, int], why: str
) -> None:
    for number in range(5):
        (volume / "workspace" / str(number)).write_bytes(b"x" * 1000)
    archive, _ = packed(volume)
    with pytest.raises(ArchiveRefused, match=why):
        packed(volume, bounds)
    with pytest.raises(ArchiveRefused, match=why):
        unpacked(archive, tmp_path / "copy", bounds)


def test_tree_that_is_too_deep_is_refused(volume: Path) -> None:
    place = os.open(volume / "workspace", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    with pytest.raises(ArchiveRefused, match="too deep"):
        packed(volume)


def test_file_with_very_many_holes_is_kept_in_bounds(tmp_path: Path) -> None:
    path, block = tmp_path / "comb", 8192
    with path.open("wb") as file:
        file.truncate(4 * MAX_EXTENTS * block)
        for number in range(MAX_EXTENTS + 500):
            os.pwrite(file.fileno(), b"x", number * block)
    with path.open("rb") as file:
        pieces = extents(file.fileno(), path.stat())
    assert pieces is not None
    assert len(pieces) <= MAX_EXTENTS
    ends = [0, *(start + length for start, length in pieces)]
    assert all(start >= end for (start, _), end in zip(pieces, ends, strict=False))
    covered = sum(length for _, length in pieces)
    assert covered >= (MAX_EXTENTS + 500) * 4096


NAMES = st.binary(min_size=1, max_size=300).filter(lambda raw: b"\0" not in raw)
HEADERS = st.builds(
    Header,
    kind=st.just(FILE),
    path=NAMES,
    size=st.integers(0, 1 << 44),
    mode=st.integers(0, 0o777),
    changed=st.integers(-(10**20), 10**20),
    target=NAMES,
    real=st.none() | st.integers(0, 1 << 44),
)


@given(HEADERS)
@settings(max_examples=80, deadline=None)
def test_header_says_what_it_was_told(header: Header) -> None:
    stream = io.BytesIO(encode(header))
    assert Headers(stream.read).next() == header
