"""What a back-up consists of, and the programs that pack it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cli.databases import ServiceDatabase
from cli.terminal import plain
from cli.transfer.service import TransferError
from storage.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
PRIVATE: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""The modes of all that is made."""
_KEYS: Final = {
    "vault_proxy/keys": "DROVER_VAULT_KEYS_FILE",
    "run/token": "DROVER_TOKEN_FILE",
    "run/api_key": "DROVER_API_KEY_FILE",
}
FILES_URL: Final = "DROVER_FILES_URL"
CHECKPOINTS: Final = "DROVER_HANDS_CHECKPOINTS"
# What refers to others comes before them: those then have all that it refers to.
_ORDER: Final = ("session", "hands", "vault_proxy", "registry")
_TOLD_LINES: Final = 3
_NO_ERROR: Final = "socket ignored"


@dataclass(frozen=True, slots=True)
class Dump:
    """A database on a server, with the schemas of these services."""

    services: tuple[str, ...]
    address: Address

    @property
    def name(self) -> str:
        """Its file of a back-up."""
        return f"{'+'.join(self.services)}.dump"


def databases(
    environment: Mapping[str, str], data: Path
) -> tuple[list[ServiceDatabase], list[Dump]]:
    """The databases that are files, and those on servers. Raises `CannotStartError`."""
    files, servers = [], dict[str, list[str]]()
    for service in _ORDER:
        database = ServiceDatabase.of(service, environment, data)
        if database.is_sqlite:
            files.append(database)
        else:
            servers.setdefault(database.url.open(), []).append(service)
    dumps = [Dump(tuple(services), Address.parse(url)) for url, services in servers.items()]
    return files, dumps


def in_order(
    files: Sequence[ServiceDatabase], dumps: Sequence[Dump]
) -> list[ServiceDatabase | Dump]:
    """In which order they are copied."""
    first: dict[str, ServiceDatabase | Dump] = {one.service: one for one in files}
    first.update((dump.services[0], dump) for dump in dumps)
    return [first[service] for service in _ORDER if service in first]


def files_directory(environment: Mapping[str, str], data: Path) -> Path | None:
    """Where the bytes of files are; `None` if that is a bucket."""
    url = environment.get(FILES_URL, "").strip()
    if not url:
        return data / "files"
    parts = urlsplit(url)
    return type(data)(unquote(parts.path)) if parts.scheme == "file" else None


def keys(environment: Mapping[str, str], data: Path) -> dict[str, Path]:
    """What opens the rest: where each is, by its name in a back-up, below the data directory."""
    named = {name: environment.get(variable, "").strip() for name, variable in _KEYS.items()}
    return {name: type(data)(path) if path else data / name for name, path in named.items()}


def copy_private(source: Path, to: Path) -> None:
    """Copies a file for its owner only, like the directories that it needs."""
    missing = [one for one in to.parents if not one.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=PRIVATE)
    handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with source.open("rb") as file, os.fdopen(handle, "wb") as copy:
        shutil.copyfileobj(file, copy)


def run(program: str, *arguments: str | Path, may_end_with: Sequence[int] = (0,)) -> str:
    """Runs a program, and answers what it prints. Raises `TransferError` with its first words."""
    return _run(program, arguments, {}, may_end_with)


def run_on(address: Address, program: str, *arguments: str | Path) -> str:
    """As `run`, of PostgreSQL's programs. No argument shows the password to others."""
    dsn, password = _apart(address.dsn)
    told = {"PGPASSWORD": password} if password else {}
    return _run(program, [f"--dbname={dsn}", *arguments], told, (0,))


def _run(
    program: str,
    arguments: Sequence[str | Path],
    told: Mapping[str, str],
    may_end_with: Sequence[int],
) -> str:
    found = shutil.which(program)
    if found is None:
        package = "PostgreSQL's client programs" if program.startswith("p") else program
        msg = f"{program} is not there: install {package}"
        raise TransferError(msg)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DROVER_")}
    ended = subprocess.run(  # noqa: S603  # arguments of ours
        [found, *map(str, arguments)],
        env={**kept, **told},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode not in may_end_with:
        lines = [line for line in map(str.strip, ended.stderr.splitlines()) if line]
        said = [line for line in lines if not line.endswith(_NO_ERROR)]
        first = said[:_TOLD_LINES] or [f"{program}: exit code {ended.returncode}"]
        raise TransferError(plain("; ".join(first)))
    return ended.stdout


def _apart(dsn: str) -> tuple[str, str]:
    """A URL without its password, and the password."""
    parts = urlsplit(dsn)
    account, at, hosts = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    query = dict(parse_qsl(parts.query))
    inner = query.pop("password", "")
    rest = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{rest}", inner or unquote(password)
