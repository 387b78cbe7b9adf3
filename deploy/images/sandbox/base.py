#!/usr/bin/env python3
"""Builds a base image from this machine's own Debian packages, without a registry or a network.

    base.py TAG [PACKAGE ...]

takes the named packages, those below and all that they depend on, as they are installed here, and
gives them to `docker import` under the name TAG. The image is as old or as new as this machine.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, Final

PACKAGES: Final = (
    *("bash", "ca-certificates", "coreutils", "curl", "dash", "diffutils", "findutils", "gawk"),
    *(
        "git",
        "grep",
        "gzip",
        "hostname",
        "jq",
        "libc-bin",
        "less",
        "mawk",
        "patch",
        "procps",
        "python3",
    ),
    *("ripgrep", "sed", "tar", "tzdata", "unzip", "util-linux", "xz-utils", "zip"),
)
_LEFT_OUT: Final = ("doc", "info", "locale", "man", "lintian", "bug")
_BESIDE: Final = (
    *("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/nsswitch.conf"),
    *("etc/alternatives", "etc/ssl/certs", "etc/debian_version"),
)
_MADE: Final = {
    "etc/passwd": "root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_DIRECTORIES: Final = {
    **dict.fromkeys(("dev", "home", "mnt", "proc", "run", "sys", "var", "workspace"), 0o755),
    "root": 0o700,
    "tmp": 0o1777,
}


def closure(wanted: list[str]) -> set[str]:
    """The packages, of those installed, that `wanted` consist of and depend on."""
    form = "${Package}\t${db:Status-Abbrev}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    depends: dict[str, str] = {}
    provided: dict[str, str] = {}
    for line in _run("dpkg-query", "-W", "-f", form).splitlines():
        name, status, needed, provides = line.split("\t")
        if status.startswith("ii"):
            depends[name] = needed
            provided.update(dict.fromkeys(_names(provides), name))
    found: set[str] = set()
    pending = list(wanted)
    while pending:
        name = pending.pop()
        name = name if name in depends else provided.get(name, "")
        if name and name not in found:
            found.add(name)
            pending += [
                next((one for one in _names(group, "|") if one in depends or one in provided), "")
                for group in depends[name].split(",")
            ]
    return found


def _names(text: str, between: str = ",") -> list[str]:
    return [re.sub(r"\(.*?\)|\[.*?\]|:\w+", "", part).strip() for part in text.split(between)]


def files(packages: set[str]) -> list[str]:
    """What the packages and the system beside them consist of, relative to the root, sorted."""
    found: set[str] = set()
    for line in _run("dpkg-query", "-L", *sorted(packages)).splitlines():
        path = Path(line)
        if not path.is_absolute() or path.parts[1:2] == ("var",):
            continue
        if path.parts[1:3] == ("usr", "share") and path.parts[3:4] and path.parts[3] in _LEFT_OUT:
            continue
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            # Once by its true place: /bin is a link to /usr/bin, and a file must not come twice.
            found.add(str(Path(os.path.realpath(path.parent), path.name).relative_to("/")))
    for name in _BESIDE:
        top = Path("/", name)
        below = sorted(top.rglob("*")) if top.is_dir() else [top]
        found.update(str(path.relative_to("/")) for path in below if os.path.lexists(path))
    for link in Path("/usr/bin").iterdir():  # such as awk, which is one of several programs
        true = os.path.realpath(link)
        if link.is_symlink() and str(link.readlink()).startswith("/etc/alternatives/"):
            found.update({str(link.relative_to("/"))} if true[1:] in found else ())
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            found.add(name)
    return sorted(found - set(_MADE))


def write(names: list[str], out: IO[bytes]) -> None:
    """The image's files as a tar."""
    with tarfile.open(fileobj=out, mode="w|") as tar:
        for name, mode in _DIRECTORIES.items():
            _add(tar, name, mode)
        for name, text in _MADE.items():
            _add(tar, name, 0o644, text.encode())
        for name in names:
            path = Path("/", name)
            if path.is_symlink() or path.is_file():
                tar.add(path, name, recursive=False, filter=_plain)
            elif path.is_dir():
                _add(tar, name, 0o755)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Owned by root, without set-user-id; nothing that only root may read leaves the machine."""
    if entry.isfile() and not entry.mode & 0o004:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode &= 0o1777
    return entry


def _add(tar: tarfile.TarFile, name: str, mode: int, content: bytes | None = None) -> None:
    """A file of that content, or a directory."""
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    entry.size = len(content or b"")
    tar.addfile(entry, io.BytesIO(content or b""))


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def main() -> int:
    """Builds the image."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):  # noqa: PLR2004
        sys.stderr.write(__doc__ or "")
        return 2
    tag, *more = sys.argv[1:]
    command = ["docker", "import", "--change", 'CMD ["/bin/bash"]', "-", tag]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as importing:  # noqa: S603
        assert importing.stdin is not None  # noqa: S101  # a pipe was asked for
        write(files(closure([*PACKAGES, *more])), importing.stdin)
        importing.stdin.close()
        return importing.wait()


if __name__ == "__main__":
    raise SystemExit(main())
