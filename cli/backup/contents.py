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
KEYS: Final = ("vault_proxy/keys", "run/token", "run/api_key")
"""What opens the rest, below the data directory."""
FILES_URL: Final = "DROVER_FILES_URL"
CHECKPOINTS: Final = "DROVER_HANDS_CHECKPOINTS"
# What refers to others comes before them: those then have all that it refers to.
_ORDER: Final = ("session", "hands", "vault_proxy", "registry")
_FILE: Final = "file://"


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


def files_directory(environment: Mapping[str, str], data: Path) -> Path | None:
    """Where the bytes of files are; `None` if that is a bucket."""
    url = environment.get(FILES_URL, "").strip()
    if not url:
        return data / "files"
    return type(data)(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def run(program: str, *arguments: str | Path, may_end_with: Sequence[int] = (0,)) -> str:
    """Runs a program, and answers what it prints. Raises `TransferError` with its last words."""
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
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise TransferError(plain(said[-1]))
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
