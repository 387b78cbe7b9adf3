"""A hand's own directory for its way out: its socket, and the certificates that it is to trust.

DIR/hands/egress/<hand>/{proxy.sock,ca-certificates.crt,session.crt}, mounted read-only into that
sandbox and no other.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from services.hands.backends.port import WayOut
from services.hands.egress.variables import AUTHORITY, BUNDLE, SOCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

_BACKLOG: Final = 512
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where distributions keep the certificates that the system trusts, in one file."""


def system_bundle(places: Sequence[str] = _BUNDLES) -> bytes:
    """What this machine trusts, in PEM; empty where there is no such file."""
    for place in map(Path, places):
        if place.is_file():
            return place.read_bytes()
    return b""


class Place:
    """One hand's directory. `bundle` is what the machine trusts."""

    def __init__(self, directory: Path, bundle: bytes) -> None:
        self.way_out = WayOut(directory, directory / BUNDLE)
        self._directory = directory
        self._bundle = bundle

    def lay_out(self, owner: int | None) -> socket.socket:
        """Makes it; the listening socket, to which `owner` alone may connect. Raises `OSError`."""
        self._directory.mkdir(parents=True)
        self._directory.chmod(0o755)
        for name, content in ((BUNDLE, self._bundle), (AUTHORITY, b"")):
            path = self._directory / name
            path.write_bytes(content)
            path.chmod(0o644)
        return self._listen(owner)

    def trust(self, authority: str) -> None:
        """Has the sandbox trust a session's authority, in PEM, and no other's. Raises `OSError`.

        In place: the sandbox has the file mounted, not its name.
        """
        own = authority.strip().encode("ascii", "replace") + b"\n" if authority else b""
        for name, content in ((BUNDLE, own + self._bundle), (AUTHORITY, own)):
            fd = os.open(self._directory / name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.truncate()

    def remove(self) -> None:
        """Deletes it."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _listen(self, owner: int | None) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By the directory's descriptor: a socket's path may have 107 bytes, however deep it is.
            listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
            path = self._directory / SOCKET
            path.chmod(0o600)
            if owner is not None:
                os.chown(path, owner, owner)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        finally:
            os.close(directory)
        return listener
