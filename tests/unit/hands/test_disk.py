from __future__ import annotations

import os
from pathlib import Path

from services.hands.measure import ENTRY_BYTES, size_of


def test_size_is_what_is_on_disk_and_follows_no_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 500_000)
    empty = size_of(root)
    (root / "a" / "b" / "file").write_bytes(b"x" * 100_000)
    (root / "link").symlink_to(outside)
    with (root / "sparse").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    assert 100_000 <= size_of(root) - empty < 200_000
    assert size_of(tmp_path / "none") == 0


def test_file_without_content_counts_too(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert size_of(tmp_path) == 100 * ENTRY_BYTES


def test_depth_hides_nothing(tmp_path: Path) -> None:
    """Deeper than any path that the kernel takes, and than the directories that are held open."""
    depth, fd = 600, os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=fd)
        os.mkdir("beside", dir_fd=fd)
        below = os.open("d" * 20, os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    large = os.open("large", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(large, b"x" * (1 << 20))
    os.close(large)
    os.close(fd)
    assert size_of(tmp_path) == 2 * depth * ENTRY_BYTES + (1 << 20)
