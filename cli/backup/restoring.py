"""Puts a back-up into an empty place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.backup import contents
from cli.terminal import Terminal
from cli.transfer.service import TransferError

if TYPE_CHECKING:
    from collections.abc import Collection

    from cli.backup.contents import Dump
    from cli.databases import ServiceDatabase

_FILES: Final = "files.tar.gz"
_HANDS: Final = "hands.tar.gz"
_ARCHIVES: Final = frozenset({_FILES, _HANDS})
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'drover\\_%' ORDER BY 1"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file of a back-up, what it is called, and where it belongs."""

    name: str
    source: Path
    place: Path

    @property
    def is_archive(self) -> bool:
        """Whether its place is a directory."""
        return self.name in _ARCHIVES


def put_back(source: Path, data: Path, keys: Path | None) -> None:
    """Restores all of it, into places that are empty. Raises as `taking.take`."""
    made = _checked(source)
    databases, dumps = contents.databases(os.environ, data)
    _check_databases(made, dumps)
    pieces = _pieces(source, made, _places(made, data, databases))
    if keys is not None:
        pieces += _secrets(keys, data)
    directories = {data, *(piece.place for piece in pieces if piece.is_archive)}
    singles = [piece.place for piece in pieces if piece.place not in directories]
    _check_empty(directories, singles)
    out = Terminal()
    try:
        data.mkdir(parents=True, exist_ok=True, mode=contents.PRIVATE)
        for piece in pieces:
            put = _unpack if piece.is_archive else contents.copy_private
            put(piece.source, piece.place)
            out.say(f"restored: {piece.name}")
        # Last, each in one transaction: whatever fails before has changed nothing on a server.
        for dump in dumps:
            told = "--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"
            contents.run_on(dump.address, "pg_restore", *told, source / dump.name)
            out.say(f"restored: {dump.name} to {dump.address.shown}")
    except BaseException:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        for place in singles:
            place.unlink(missing_ok=True)
        raise
    out.say("now `drover migrate`, and start it")


def _places(made: list[str], data: Path, databases: list[ServiceDatabase]) -> dict[str, Path]:
    """Where the settings want what a back-up may have. Raises `TransferError`."""
    places = {f"{database.service}.db": Path(database.shown) for database in databases}
    places[_HANDS] = data / "hands"
    files = contents.files_directory(os.environ, data)
    if files is not None:
        places[_FILES] = files
    elif _FILES in made:
        msg = f"it has {_FILES}: {contents.FILES_URL} must name a directory, or not be set"
        raise TransferError(msg)
    return places


def _pieces(source: Path, made: list[str], places: dict[str, Path]) -> list[_Piece]:
    return [_Piece(name, source / name, places[name]) for name in made if name in places]


def _secrets(keys: Path, data: Path) -> list[_Piece]:
    """The keys of a back-up that are not where they belong. Raises `TransferError`."""
    places = contents.keys(os.environ, data)
    kept = [name for name in places if (keys / name).is_file()]
    if not kept:
        msg = f"{keys} has no keys: it is the one that --keys named when the back-up was taken"
        raise TransferError(msg)
    found = []
    for name in kept:
        source, place = keys / name, places[name]
        if not place.exists():
            found.append(_Piece(f"keys/{name}", source, place))
        elif place.read_bytes() != source.read_bytes():
            msg = f"{place} is another key than the back-up's: move it away, or unset its setting"
            raise TransferError(msg)
    return found


def _check_empty(directories: Collection[Path], singles: Collection[Path]) -> None:
    for directory in directories:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            msg = f"{directory} is not empty: name a new directory with --data, or its setting"
            raise TransferError(msg)
    for place in singles:
        if place.exists():
            msg = f"{place} is there already: name another file with its setting"
            raise TransferError(msg)


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
    directory.mkdir(parents=True, exist_ok=True, mode=contents.PRIVATE)
    told = "--extract", "--gzip", "--numeric-owner", "--preserve-permissions", "--xattrs"
    contents.run("tar", *told, f"--file={archive}", f"--directory={directory}")
