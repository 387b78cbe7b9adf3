"""A small disk is full when it is said to be, and has room again afterwards."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.doubles.volume import volume


def test_full_volume_takes_no_byte_more_and_a_freed_one_does(tmp_path: Path) -> None:
    with volume(tmp_path / "disk", 2) as disk:
        file = disk.path / "file"
        file.write_bytes(b"before")
        disk.fill()
        assert disk.room == 0
        with pytest.raises(OSError, match="No space left") as caught:
            (disk.path / "more").write_bytes(b"x" * 5000)
        assert caught.value.errno == errno.ENOSPC
        assert file.read_bytes() == b"before"
        disk.free()
        assert disk.room > 1024 * 1024
    assert not (tmp_path / "disk" / "file").exists()
