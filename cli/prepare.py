"""`python -m cli.prepare DIR`: what the containers of an installation share, made once.

Below DIR each file is in the directory of those who are given it, which is a volume of its own:
the installation's secret, the first API key, the database's password, and certificates. What is
there stays, whatever else is missing; certificates that end within two months are made anew.
"""

from __future__ import annotations

import os
import secrets
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError
from cli.terminal import Terminal
from identity.files import write_private, write_public
from identity.folder import Folder, FolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from identity.table import Caller

_SHORTEST_KEY: Final = 16
_SOON: Final = timedelta(days=60)
_KEY_FILE: Final = "/run/drover/keys/api_key"


def prepare(directory: Path, environ: Mapping[str, str]) -> list[Caller]:
    """Makes what is missing; whose certificates were made anew.

    Raises `CannotStartError` for a setting that cannot be used.
    """
    key = environ.get("DROVER_API_KEY", "").strip()
    if key and (len(key) < _SHORTEST_KEY or not key.isascii() or " " in key):
        msg = (
            f"DROVER_API_KEY in .env must be {_SHORTEST_KEY} ASCII characters or more, without "
            "spaces: choose another, or leave it empty and one is made"
        )
        raise CannotStartError(msg)
    try:
        _make(directory / "secret" / "token", f"{secrets.token_urlsafe(32)}\n")
        _make(directory / "keys" / "api_key", f"{key or _new_key()}\n", anew=bool(key))
        password = _make(
            directory / "postgres" / "password", secrets.token_urlsafe(32), write_public
        )
        _make(directory / "postgres" / "superuser", secrets.token_urlsafe(32), write_public)
        _make(directory / "database" / "pgpass", f"*:*:*:drover:{password}\n", anew=True)
        return _certify(directory)
    except OSError as error:
        msg = (
            f"{error.filename} cannot be written ({error.strerror}): is its volume another user's?"
        )
        raise CannotStartError(msg) from error


def _certify(directory: Path) -> list[Caller]:
    """Makes an authority, and certificates of it for those who have none, or none for long."""
    certificates, now = Folder(directory), datetime.now(UTC)
    try:
        certificates.create(now, if_missing=True)
        return certificates.renew(now, _SOON)
    except FolderError as error:
        raise CannotStartError(str(error)) from error


def _new_key() -> str:
    return f"drv_{secrets.token_urlsafe(32)}"


def _make(
    path: Path,
    text: str,
    write: Callable[[Path, bytes], None] = write_private,
    *,
    anew: bool = False,
) -> str:
    """The file's content: what is there, unless it is to be written `anew`."""
    if not anew and path.exists():
        return path.read_text(encoding="utf-8")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(path, text.encode())
    return text


def main() -> None:
    """Prepares, and says what a person needs next."""
    directory, out = Path(sys.argv[1]), Terminal()
    try:
        renewed = prepare(directory, os.environ)
    except CannotStartError as error:
        Terminal(stderr=True).say(f"drover: {error}", "red")
        sys.exit(1)
    if renewed:
        out.say(
            "certificates were renewed, which processes read as they start: restart all that run"
        )
    out.say(f"prepared: the API key is in {_KEY_FILE} of the gateway's container")


if __name__ == "__main__":
    main()
