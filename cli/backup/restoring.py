"""Puts a back-up into an empty place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.backup import contents
from cli.terminal import Terminal
from cli.transfer.service import TransferError

if TYPE_CHECKING:
    from cli.backup.contents import Dump

_PRIVATE = 0o700
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'drover\\_%' ORDER BY 1"


def put_back(source: Path, data: Path, keys: Path | None) -> None:
    """Restores all of it, into places that are empty. Raises as `taking.take`."""
    made = _checked(source)
    if data.exists() and any(data.iterdir()):
        msg = f"{data} is not empty: name a new directory with --data"
        raise TransferError(msg)
    if keys is not None and not keys.is_dir():
        msg = f"{keys} is no directory: it is the one that --keys named when the back-up was taken"
        raise TransferError(msg)
    _, dumps = contents.databases(os.environ, data)
    _check_databases(made, dumps)
    files = contents.files_directory(os.environ, data)
    out = Terminal()
    try:
        data.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        for name in made:
            if name.endswith(".db"):
                shutil.copyfile(source / name, data / name)
                (data / name).chmod(0o600)
            elif name == "files.tar.gz" and files is not None:
                _unpack(source / name, files)
            elif name == "hands.tar.gz":
                _unpack(source / name, data / "hands")
            else:
                continue
            out.say(f"restored: {name}")
        if keys is not None:
            shutil.copytree(keys, data, dirs_exist_ok=True)
            out.say("restored: keys")
        # Last, each in one transaction: whatever fails before has changed nothing on a server.
        for dump in dumps:
            told = "--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"
            contents.run_on(dump.address, "pg_restore", *told, source / dump.name)
            out.say(f"restored: {dump.name} to {dump.address.shown}")
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    out.say("now `drover migrate`, and start it")


def _checked(source: Path) -> list[str]:
    """The files of a back-up that is whole. Raises `TransferError`."""
    try:
        manifest: dict[str, Any] = json.loads((source / contents.MANIFEST).read_text())
        made: dict[str, str] = manifest["sha256"]
        known = manifest["drover_backup"] == contents.FORMAT
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        msg = f"{source} is no back-up of `drover backup`: it has no {contents.MANIFEST} to be read"
        raise TransferError(msg) from None
    if not known:
        msg = f"{source} was made by another release ({manifest.get('version')}): restore it there"
        raise TransferError(msg)
    for name, digest in made.items():
        path = source / name
        if not path.is_file() or Path(name).name != name:
            msg = f"{path} is missing: take another back-up"
            raise TransferError(msg)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                msg = f"{path} is damaged: take another back-up"
                raise TransferError(msg)
    return list(made)


def _check_databases(made: list[str], dumps: list[Dump]) -> None:
    """Raises `TransferError` unless the settings name empty databases as the back-up is of."""
    of_servers = {name for name in made if name.endswith(".dump")}
    if of_servers != {dump.name for dump in dumps}:
        if of_servers:
            told = "; ".join(sorted(of_servers))
            msg = (
                f"it has {told}: set DROVER_DATABASE_URL, or the services' own, to empty databases"
            )
        else:
            msg = "it has SQLite files: unset DROVER_DATABASE_URL and the services' own"
        raise TransferError(msg)
    for dump in dumps:
        there = contents.run_on(
            dump.address,
            "psql",
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            f"--command={_SCHEMAS}",
        ).split()
        taken = [f"drover_{one}" for one in dump.services if f"drover_{one}" in there]
        if taken:
            msg = f"{dump.address.shown} has {', '.join(taken)} already: name an empty database"
            raise TransferError(msg)


def _unpack(archive: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    told = "--extract", "--gzip", "--numeric-owner", "--preserve-permissions", "--xattrs"
    contents.run("tar", *told, f"--file={archive}", f"--directory={directory}")
