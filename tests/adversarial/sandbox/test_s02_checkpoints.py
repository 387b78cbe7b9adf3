"""S2 for checkpoints: a tree that changes while it is read, to have the host's files read.

The reader here has every right: nothing but the way it opens things keeps it inside.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from services.hands.archive.bounds import PARTS, Bounds
from services.hands.archive.pack import Packer
from services.hands.archive.tree import LeftOut, walk
from services.hands.archive.unpack import Unpacker

ROUNDS = 8
SECRET = b"a secret of the host " * 40


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Files that are none of the volume's."""
    place = tmp_path / "host"
    (place / "below").mkdir(parents=True)
    for path in (place / "secret", place / "below" / "secret"):
        path.write_bytes(SECRET)
    return place


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    for part in PARTS:
        (root / part).mkdir(parents=True)
    return root


@contextmanager
def meanwhile(change: Callable[[int], None]) -> Iterator[None]:
    """Does something again and again, in a thread of its own, until the block ends."""
    over = threading.Event()

    def run() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            with suppress(OSError):
                change(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def packed(root: Path) -> bytes:
    archive = io.BytesIO()
    directory = os.open(root, os.O_RDONLY)
    try:
        Packer(archive.write, Bounds(10_000, 1 << 30)).pack(directory)
    finally:
        os.close(directory)
    return archive.getvalue()


def unpacked(archive: bytes, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    directory = os.open(root, os.O_RDONLY)
    try:
        Unpacker(io.BytesIO(archive).read, Bounds(10_000, 1 << 30)).unpack(directory)
    finally:
        os.close(directory)


def contents(root: Path) -> Iterator[bytes]:
    for directory, _, names in os.walk(root):
        for path in (Path(directory, name) for name in names):
            if not path.is_symlink():
                yield path.read_bytes()


def test_s02_links_out_are_kept_as_links(volume: Path, host: Path, tmp_path: Path) -> None:
    place = volume / "workspace"
    (place / "file").symlink_to(host / "secret")
    (place / "directory").symlink_to(host)
    (place / "up").symlink_to("../../host/below")
    os.link(host / "secret", place / "hard")  # which no sandbox could make: it is a file like any
    (place / "hard").unlink()
    unpacked(packed(volume), tmp_path / "copy")
    assert (tmp_path / "copy" / "workspace" / "file").readlink() == host / "secret"
    assert (tmp_path / "copy" / "workspace" / "directory").readlink() == host
    assert not any(SECRET in data for data in contents(tmp_path / "copy"))


def test_s02_part_that_is_a_link_is_not_entered(volume: Path, host: Path) -> None:
    (volume / "outputs").rmdir()
    (volume / "outputs").symlink_to(host)
    directory = os.open(volume, os.O_RDONLY)
    found = [entry.path for entry in walk(directory, Bounds(100, 1 << 20), LeftOut())]
    os.close(directory)
    assert b"outputs/secret" not in found


@pytest.mark.parametrize("kind", ["file", "directory", "ancestor", "pipe"])
def test_s02_swap_after_the_check_reads_nothing_of_the_host(
    kind: str, volume: Path, host: Path, tmp_path: Path
) -> None:
    place = volume / "workspace"
    target = place / "a" / "target"
    aside = place / "aside"
    target.parent.mkdir()
    for number in range(20):
        (place / f"pad{number}").write_bytes(b"x")

    def file(_number: int) -> None:
        target.write_bytes(b"harmless")
        target.unlink()
        target.symlink_to(host / "secret")
        target.unlink()

    def directory(_number: int) -> None:
        target.mkdir()
        (target / "secret").write_bytes(b"harmless")
        target.rename(aside)
        target.symlink_to(host)
        target.unlink()
        shutil.rmtree(aside)

    def ancestor(_number: int) -> None:
        (place / "a" / "below").mkdir()
        (place / "a" / "below" / "secret").write_bytes(b"harmless")
        (place / "a").rename(aside)
        (place / "a").symlink_to(host)
        (place / "a").unlink()
        shutil.rmtree(aside)
        (place / "a").mkdir()

    def pipe(_number: int) -> None:
        target.write_bytes(b"harmless")
        target.unlink()
        os.mkfifo(target)
        target.unlink()

    changes = {"file": file, "directory": directory, "ancestor": ancestor, "pipe": pipe}
    with meanwhile(changes[kind]):
        for _ in range(ROUNDS):
            unpacked(packed(volume), tmp_path / "copy")
            assert not any(SECRET in data for data in contents(tmp_path / "copy"))
    assert (host / "secret").read_bytes() == (host / "below" / "secret").read_bytes() == SECRET
    assert (host / "secret").stat().st_mode & 0o777 == 0o644


@contextmanager
def just_before(
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    when: Callable[..., bool],
    do: Callable[[], None],
) -> Iterator[None]:
    """Does something once, at the very moment between the check and the use."""
    real = getattr(os, function)
    pending = [do]

    def wrapper(*given: object, **more: object) -> object:
        if pending and when(*given):
            pending.pop()()
        return real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, function, wrapper)
        yield
    assert not pending


def is_use(name: bytes) -> Callable[..., bool]:
    return lambda path, flags, *_: path == name and not flags & os.O_PATH


@pytest.mark.parametrize("what", ["secret", "below", "pipe"])
def test_s02_file_swapped_in_the_very_moment_is_left_out(
    what: str, volume: Path, host: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = volume / "workspace" / "target"
    target.write_bytes(b"harmless")

    def swap() -> None:
        target.unlink()
        if what == "pipe":
            os.mkfifo(target)
        else:
            target.symlink_to(host / what)

    with just_before(monkeypatch, "open", is_use(b"target"), swap):
        archive = packed(volume)
    unpacked(archive, tmp_path / "copy")
    assert [*(tmp_path / "copy" / "workspace").iterdir()] == []


def test_s02_directory_swapped_in_the_very_moment_is_left_out(
    volume: Path, host: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = volume / "workspace" / "target"
    target.mkdir()

    def swap() -> None:
        target.rmdir()
        target.symlink_to(host)

    with just_before(monkeypatch, "open", is_use(b"target"), swap):
        archive = packed(volume)
    unpacked(archive, tmp_path / "copy")
    assert [*(tmp_path / "copy" / "workspace").iterdir()] == []


def test_s02_directory_moved_out_while_it_is_read_leads_nowhere_else(
    volume: Path, host: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = volume / "workspace"
    (place / "a" / "b").mkdir(parents=True)
    (place / "a" / "b" / "secret").write_bytes(b"harmless")

    def swap() -> None:
        (place / "a").rename(place / "moved")
        (place / "a").mkdir()
        (place / "a" / "b").symlink_to(host)

    with just_before(monkeypatch, "open", is_use(b"secret"), swap):
        archive = packed(volume)
    unpacked(archive, tmp_path / "copy")
    copied = tmp_path / "copy" / "workspace" / "a" / "b" / "secret"
    assert copied.read_bytes() == b"harmless"


@pytest.mark.parametrize("locked", ["secret", "below"])
def test_s02_mode_is_lifted_of_what_was_looked_at_and_of_nothing_else(
    locked: str, volume: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = volume / "workspace" / "target"
    target.mkdir() if locked == "below" else target.touch()
    for path in (target, host / locked):
        path.chmod(0o000)

    def swap() -> None:
        target.rename(volume / "workspace" / "moved")
        target.symlink_to(host / locked)

    with just_before(monkeypatch, "chmod", lambda *_: True, swap):
        packed(volume)
    assert (host / locked).stat().st_mode & 0o777 == 0
    assert (volume / "workspace" / "moved").stat().st_mode & 0o777 == 0


def test_s02_file_that_shrinks_and_grows_gives_a_whole_archive(
    volume: Path, tmp_path: Path
) -> None:
    file, after = volume / "workspace" / "file", volume / "workspace" / "untouched"
    file.write_bytes(b"x" * 600_000)
    after.write_bytes(b"untouched")

    def change(number: int) -> None:
        os.truncate(file, (0, 300_000, 900_000, 2_000_000)[number % 4])

    with meanwhile(change):
        for _ in range(ROUNDS):
            unpacked(packed(volume), tmp_path / "copy")
            assert (tmp_path / "copy" / "workspace" / "untouched").read_bytes() == b"untouched"
            assert set((tmp_path / "copy" / "workspace" / "file").read_bytes()) <= set(b"x\0")


def test_s02_tree_that_comes_and_goes_gives_a_whole_archive(volume: Path, tmp_path: Path) -> None:
    place = volume / "workspace"

    def change(number: int) -> None:
        tree = place / f"tree{number % 3}"
        (tree / "a" / "b").mkdir(parents=True)
        (tree / "a" / "file").write_bytes(b"x")
        os.link(tree / "a" / "file", tree / "a" / "b" / "linked")
        (tree / "a").rename(place / f"moved{number % 3}")
        shutil.rmtree(place / f"moved{number % 3}")
        shutil.rmtree(tree)

    with meanwhile(change):
        for _ in range(ROUNDS):
            unpacked(packed(volume), tmp_path / "copy")
