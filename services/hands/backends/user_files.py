"""A container's user database: its own user's name, whatever the image says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.hands.backends import inside

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The files that take the place of the image's /etc/passwd and /etc/group."""

    passwd: Path
    group: Path


def write(directory: Path, user: int) -> UserFiles:
    """Writes both for a user to `directory`, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    files = UserFiles(directory / "passwd", directory / "group")
    for path, text in ((files.passwd, _passwd(user)), (files.group, _group(user))):
        path.write_text(text, encoding="ascii")
        path.chmod(0o644)
    return files


def _passwd(user: int) -> str:
    return (
        "root:x:0:0::/nonexistent:/usr/sbin/nologin\n"
        f"agent:x:{user}:{user}::{inside.ENVIRONMENT['HOME']}:{inside.BASH}\n"
        "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
    )


def _group(user: int) -> str:
    return f"root:x:0:\nagent:x:{user}:\nnogroup:x:65534:\n"
