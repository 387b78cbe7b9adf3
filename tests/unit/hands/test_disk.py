from __future__ import annotations

import os
from pathlib import Path

from services.hands.disk import size_of


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
