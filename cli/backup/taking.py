"""Takes a back-up beside what runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cli.backup import contents
from cli.backup.contents import Dump
from cli.terminal import Terminal
from cli.transfer.service import TransferError
from identity.about import version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.databases import ServiceDatabase

_CHANGED = 1  # tar's exit code when files changed while it read them


def take(data: Path, to: Path, keys: Path | None) -> None:
    """Writes everything to `to`, and what opens it to `keys`: all, or nothing.

    Databases first: whatever they name is in the files that are packed after them. Raises
    `TransferError`, `CannotStartError` and `OSError`.
    """
    _check_places(data, [place for place in (to, keys) if place is not None])
    unfinished = to.with_name(f".{to.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True, mode=contents.PRIVATE)
    out = Terminal()
    try:
        made: dict[str, str] = {}
        left_out: list[str] = []
        for name, what in _pieces(data, unfinished, left_out):
            made[name] = _digest(unfinished / name)
            out.say(f"{what}: {name}")
        if keys is None:
            left_out.append("the keys of stored credentials and the secrets: name --keys")
        elif _copy_keys(data, keys):
            out.say(f"keys: {keys}")
        else:
            left_out.append(f"keys: {data} has none")
        manifest = {
            "drover_backup": contents.FORMAT,
            "version": version(),
            "made_at": datetime.now(UTC).isoformat(),
            "sha256": made,
            "left_out": left_out,
        }
        written = unfinished / contents.MANIFEST
        written.write_text(json.dumps(manifest, indent=1) + "\n")
        written.chmod(contents.PRIVATE_FILE)
        unfinished.rename(to)
    except BaseException:
        if keys is not None:
            shutil.rmtree(keys, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    for one in left_out:
        out.say(f"left out: {one}", "yellow")


def _check_places(data: Path, places: list[Path]) -> None:
    for place in places:
        if place.exists():
            msg = f"{place} is there already: name a new directory"
            raise TransferError(msg)
        if place.resolve().is_relative_to(data.resolve()):
            msg = f"{place} is in {data}, which may go as a whole: name a directory elsewhere"
            raise TransferError(msg)
    if not data.is_dir():
        msg = f"{data} is no directory: name the data directory with --data"
        raise TransferError(msg)


def _pieces(data: Path, to: Path, left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Writes one file after another; yields its name, and what it has."""
    databases = contents.in_order(*contents.databases(os.environ, data))
    if not any(isinstance(one, Dump) or one.exists for one in databases):
        msg = (
            f"{data} has no databases: name the directory of a stack with --data, or where they "
            "are with DROVER_DATABASE_URL, as the services have it"
        )
        raise TransferError(msg)
    for database in databases:
        if isinstance(database, Dump):
            yield _dump(database, to), f"database of {', '.join(database.services)}"
        elif database.exists:
            yield _copy_database(database, to), f"database of {database.service}"
        else:
            left_out.append(f"the database of {database.service}: {database.shown} is not there")
    directory = contents.files_directory(os.environ, data)
    if directory is None:
        left_out.append("files, which are in a bucket: keep what is deleted there as long as this")
    elif directory.is_dir():
        yield _pack(directory, to / "files.tar.gz"), "files"
    hands = data / "hands"
    if hands.is_dir():
        left = ("--exclude=./packages", "--exclude=./spares")  # made again
        yield _pack(hands, to / "hands.tar.gz", *left), "workspaces"
    if os.environ.get(contents.CHECKPOINTS):
        left_out.append("checkpoints of workspaces: keep what is deleted there as long as this")


def _dump(dump: Dump, to: Path) -> str:
    schemas = [f"--schema=drover_{service}" for service in dump.services]
    told = "--format=custom", "--no-owner", "--no-privileges"
    contents.run_on(dump.address, "pg_dump", *told, *schemas, f"--file={to / dump.name}")
    return dump.name


def _copy_database(database: ServiceDatabase, to: Path) -> str:
    name = f"{database.service}.db"
    source = sqlite3.connect(f"file:{quote(database.shown)}?mode=rw", uri=True)
    with closing(source), closing(sqlite3.connect(to / name)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    return name


def _pack(directory: Path, to: Path, *options: str) -> str:
    arguments = "--create", "--gzip", "--numeric-owner", "--xattrs", *options
    place = f"--file={to}", f"--directory={directory}", "."
    contents.run("tar", *arguments, *place, may_end_with=(0, _CHANGED))
    return to.name


def _copy_keys(data: Path, keys: Path) -> bool:
    """Copies those that there are; whether there are any."""
    there = {
        name: place for name, place in contents.keys(os.environ, data).items() if place.is_file()
    }
    if there:
        keys.mkdir(parents=True, mode=contents.PRIVATE)
    for name, place in there.items():
        contents.copy_private(place, keys / name)
    return bool(there)


def _digest(path: Path) -> str:
    path.chmod(contents.PRIVATE_FILE)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
