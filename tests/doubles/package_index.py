"""Indexes of packages, for pip and for npm: small, and of the tests' own making."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.doubles.origin import Asked

VERSION = "1.0.0"


@dataclass
class PackageIndex:
    """Replies as both; `url` is its own. Every package has one module, which says `hello`."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict)
    tarballs: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """Below /apt, by their paths."""
    asked: list[str] = field(default_factory=list)

    def add_wheel(self, name: str, *, needs: str = "") -> None:
        """A package for pip, with a program of the same name."""
        info = f"{name}-{VERSION}.dist-info"
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
        about += f"Requires-Dist: {needs}\n" if needs else ""
        files = {
            f"{name}.py": f"def main():\n    print('hello from {name}')\n",
            f"{info}/METADATA": about,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
        }
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        self.wheels[name] = content.getvalue()

    def add_tarball(self, name: str, files: Mapping[str, str] | None = None) -> None:
        """A package for npm, with a program of the same name."""
        given = files or {
            "package.json": json.dumps(
                {"name": name, "version": VERSION, "main": "index.js", "bin": {name: "bin.js"}}
            ),
            "index.js": f"module.exports = 'hello from {name}';\n",
            "bin.js": "#!/usr/bin/env node\nconsole.log(require('./index.js'));\n",
        }
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for path, text in given.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size, entry.mode = len(text), 0o755
                archive.addfile(entry, io.BytesIO(text.encode()))
        self.tarballs[name] = content.getvalue()

    def reply(self, asked: Asked) -> bytes:
        """The answer to a request."""
        path = asked.line.decode().split(" ")[1]
        self.asked.append(path)
        kind, _, rest = path.lstrip("/").partition("/")
        name = rest.strip("/")
        if kind == "simple" and name in self.wheels:
            file = f"{name}-{VERSION}-py3-none-any.whl"
            link = f'<!DOCTYPE html><a href="{self.url}/wheels/{file}">{file}</a>'
            return _answer(link.encode(), "text/html")
        if kind == "wheels" and (name := name.partition("-")[0]) in self.wheels:
            return _answer(self.wheels[name], "application/zip")
        if kind == "npm" and name in self.tarballs:
            return _answer(json.dumps(self._document(name)).encode(), "application/json")
        if kind == "tarballs" and (name := name.removesuffix(".tgz")) in self.tarballs:
            return _answer(self.tarballs[name], "application/gzip")
        if kind == "apt" and (name := name.removeprefix("./")) in self.files:
            return _answer(self.files[name], "application/octet-stream")
        return _answer(b"there is none", "text/plain", "404 Not Found")

    def _document(self, name: str) -> object:
        digest = base64.b64encode(hashlib.sha512(self.tarballs[name]).digest()).decode()
        dist = {"tarball": f"{self.url}/tarballs/{name}.tgz", "integrity": f"sha512-{digest}"}
        version: dict[str, object] = {"name": name, "version": VERSION, "dist": dist}
        version["bin"] = {name: "bin.js"}
        version["hasInstallScript"] = True  # npm looks for some where it is told that there are
        return {"name": name, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}


def _answer(body: bytes, kind: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
