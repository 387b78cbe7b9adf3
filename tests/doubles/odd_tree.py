"""A workspace that has everything in it that is easily lost, and what it looks like."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from services.hands.archive.bounds import PARTS

# Run by a sandbox, in /workspace: Python, for a shell has its own idea of bytes.
SCRIPT = rb"""
import os
os.chdir(b"/workspace" if os.path.isdir("/mnt/session") else b".")
def put(name, data=b"", mode=0o644):
    with open(name, "wb") as file:
        file.write(data)
    os.chmod(name, mode)
put(b"plain", b"text\n")
put(b"empty")
put(b"bad \xff\xfe name", b"\0\xff" * 500)
put("na\u00efve \u65e5\u672c \U0001f600 e\u0301".encode(), b"unicode")
put(b"line\nbreak = 12 path=x", b"record")
put(b" lead and trail ", b"blank")
put(b"-rf", b"flag")
put(b"n" * 255, b"long")
put(b"run.sh", b"#!/bin/sh\necho hi\n", 0o755)
put(b"private", b"key", 0o600)
put(b"locked", b"nobody reads this", 0o000)
put(b"large", b"".join(number.to_bytes(8, "big") for number in range(400000)))
os.makedirs(b"deep/" + b"d" * 200 + b"/" + b"e" * 200 + b"/bottom")
os.mkdir(b"no files")
os.mkdir(b"shut")
put(b"shut/inside", b"inside")
os.link(b"shut/inside", b"also inside")
os.chmod(b"shut", 0o000)
os.link(b"run.sh", b"deep/hard link")
os.symlink(b"plain", b"link")
os.symlink(b"/etc/passwd", b"absolute")
os.symlink(b"../../../../../etc/shadow", b"deep/upwards")
os.symlink(b"nowhere \xff/", b"dangling")
os.symlink(b".", b"loop")
with open(b"sparse", "wb") as file:
    file.truncate(48 << 20)
    file.seek(7 << 20)
    file.write(b"in the middle")
    file.seek((48 << 20) - 3)
    file.write(b"end")
with open(b"hole", "wb") as file:
    file.truncate(1 << 20)
os.utime(b"plain", ns=(0, 1234567890123456789))
os.utime(b"empty", ns=(0, -1500000001))
os.utime(b"link", ns=(0, 987654321000000001), follow_symlinks=False)
os.utime(b"no files", ns=(0, 1000000000000000007))
"""


def make(root: Path) -> None:
    """A whole volume below `root`, which is not there yet."""
    for part in PARTS:
        (root / part).mkdir(parents=True)
    before = Path.cwd()
    os.chdir(root / "workspace")
    try:
        exec(compile(SCRIPT, "odd_tree", "exec"), {})  # noqa: S102
    finally:
        os.chdir(before)
    (root / "outputs" / "report.txt").write_text("done")
    (root / "home" / ".config").mkdir()


def look(root: Path) -> dict[bytes, tuple[object, ...]]:
    """What is below `root`: kinds, modes, times, links, contents. Needs root for what is locked."""
    found: dict[bytes, tuple[object, ...]] = {}
    first: dict[int, bytes] = {}
    pending = [os.fsencode(root / part) for part in PARTS]
    while pending:
        path = pending.pop()
        status, name = os.lstat(path), path[len(os.fsencode(root)) + 1 :]
        content: object = None
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                pending += [entry.path for entry in entries]
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)  # noqa: PTH115  # of bytes
        else:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, "sha256").digest()
            content = status.st_size, digest, first.setdefault(status.st_ino, name) == name
        kind = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        found[name] = (*kind, status.st_mtime_ns, content)
    # Which of two hard links came first is nothing to rely on.
    return {
        name: (*facts[:3], facts[3][:2] if isinstance(facts[3], tuple) else facts[3])
        for name, facts in found.items()
    } | {b"": (sorted(_pairs(root)),)}


def _pairs(root: Path) -> list[tuple[bytes, ...]]:
    links: dict[int, list[bytes]] = {}
    for directory, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(directory, name)  # noqa: PTH118
            status = os.lstat(path)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                links.setdefault(status.st_ino, []).append(path[len(os.fsencode(root)) :])
    return [tuple(sorted(paths)) for paths in links.values()]
