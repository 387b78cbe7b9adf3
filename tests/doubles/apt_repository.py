"""A repository for apt, signed as real ones are, with packages of the tests' own making."""

from __future__ import annotations

import hashlib
import io
import runpy
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Final

from tests.doubles.docker_engine import SANDBOX

KEY: Final = "etc/apt/keyrings/tests.asc"
_PROGRAMS: Final = ("dpkg-deb", "gpg", "gpgconf")
_STATE: Final = (
    *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg/info"),
    *("var/lib/dpkg/triggers", "var/lib/dpkg/updates", "var/log/apt", "etc/apt/apt.conf.d"),
)


def lacking() -> str:
    """The first program that is not there; empty if all are."""
    missing = next((name for name in _PROGRAMS if shutil.which(name) is None), "")
    return f"no {missing}: apt-get install dpkg gnupg" if missing else ""


class AptRepository:
    """`files` are what is to be served, by their paths below it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._home = directory / "keys"
        self._home.mkdir(mode=0o700)
        self._sections: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self._gpg("--quick-generate-key", "tests@example.com", "ed25519", "sign", "never")
        self.key = self._gpg("--armor", "--export")

    def add(self, name: str, *, program: str = "", script: str = "") -> None:
        """A package with a program of the same name; `script` runs when it is configured."""
        text = program or f"echo hello from {name}"
        root = self._directory / name
        shutil.rmtree(root, ignore_errors=True)
        control = (
            f"Package: {name}\nVersion: 1.0.0\nArchitecture: all\n"
            "Maintainer: Tests <tests@example.com>\nDescription: says hello\n"
        )
        _write(root / "DEBIAN" / "control", control)
        _write(root / "usr" / "bin" / name, f"#!/bin/sh\n{text}\n", 0o4755)
        if script:
            _write(root / "DEBIAN" / "postinst", f"#!/bin/sh\n{script}\n", 0o755)
        made = self._directory / f"{name}.deb"
        command = ("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, made)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        content = self.files[made.name] = made.read_bytes()
        self._sections[name] = (
            f"{control}Filename: ./{made.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
        self._sign()

    def _sign(self) -> None:
        listed = self.files["Packages"] = "\n".join(self._sections.values()).encode()
        digest = hashlib.sha256(listed).hexdigest()
        release = f"Date: {formatdate(usegmt=True)}\nSHA256:\n {digest} {len(listed)} Packages\n"
        self.files["InRelease"] = self._gpg("--clearsign", given=release.encode())

    def _gpg(self, *arguments: str, given: bytes = b"") -> bytes:
        told = ("--homedir", str(self._home), "--batch", "--quiet", "--passphrase", "")
        command = ["gpg", *told, *arguments]
        return subprocess.run(command, input=given, check=True, capture_output=True).stdout


@contextmanager
def apt_repository() -> Iterator[AptRepository]:
    """One in a place of its own, with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="drover-apt-") as directory:
        made = AptRepository(Path(directory))
        try:
            yield made
        finally:
            keys = Path(directory, "keys")
            subprocess.run(["gpgconf", "--homedir", keys, "--kill", "all"], check=True)


def with_apt(url: str, key: bytes) -> bytes:
    """What an image needs beside the tests' own to install from there, as a tar."""
    base = runpy.run_path(str(SANDBOX / "base.py"))
    made: dict[str, bytes] = {
        KEY: key,
        "etc/apt/sources.list": f"deb [signed-by=/{KEY}] {url} ./\n".encode(),
        "var/lib/dpkg/status": b"",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in _STATE:
            _add(archive, name, None)
        for name in base["files"](base["closure"](["apt"]) - base["closure"]([*base["PACKAGES"]])):
            if name not in made:
                archive.add(Path("/", name), name, recursive=False, filter=base["_plain"])
        for name, content in made.items():
            _add(archive, name, content)
    return packed.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755
    entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    entry.size = len(content or b"")
    archive.addfile(entry, io.BytesIO(content or b""))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
