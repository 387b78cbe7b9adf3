"""A container's user database."""

from __future__ import annotations

from pathlib import Path

from services.hands.backends import user_files


def test_user_database_names_the_volumes_owner_and_all_may_read_it(tmp_path: Path) -> None:
    files = user_files.write(tmp_path / "hand_1", 200_001)
    assert "agent:x:200001:200001::/mnt/session/home:/bin/bash\n" in files.passwd.read_text()
    assert "agent:x:200001:\n" in files.group.read_text()
    assert {path.stat().st_mode & 0o777 for path in (files.passwd, files.group)} == {0o644}
