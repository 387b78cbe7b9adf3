"""The sandbox's /etc: one directory, so that a sandbox starts with few mounts instead of thirty."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Final

USER: Final = 1000
HOSTNAME: Final = "sandbox"

# Only what programs need to run at all; what names users or hosts is made for the sandbox.
_COPIED: Final = (
    "ImageMagick-*",
    "R",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "java-*-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "python3*",
    "services",
    "ssl/openssl.cnf",
    "terminfo",
    "texmf",
)
MOUNTED: Final = ("alternatives", "ssl/certs")
"""Directories of hundreds of links, which would take long to copy: mounted where they are."""
_MADE: Final = {
    "passwd": "root:x:0:0::/nonexistent:/usr/sbin/nologin\n"
    f"agent:x:{USER}:{USER}::/mnt/session/home:/bin/bash\n"
    "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    "group": f"root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "hostname": f"{HOSTNAME}\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def release(place: Path = Path("/etc/os-release")) -> str:
    """The system's name and version (os-release(5)); empty where it does not say."""
    try:
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " ".join(sorted(line for line in lines if line.startswith(("ID=", "VERSION_ID="))))


def lay_out(directory: Path, system: Path = Path("/etc")) -> None:
    """Makes the directory anew from what the system's has now."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name in MOUNTED:
        (directory / name).mkdir(parents=True)
    for pattern in _COPIED:
        for source in sorted(system.glob(pattern)):
            _copy(source, directory / source.relative_to(system))
    for name, text in _MADE.items():
        (directory / name).write_text(text, encoding="ascii")
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _copy(source: Path, target: Path) -> None:
    """Copies links as links, and of the rest what everybody may read."""
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.readlink())
    elif stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IXOTH:
        for entry in sorted(source.iterdir()):
            _copy(entry, target / entry.name)
    elif stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IROTH:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
