"""Where a database is: a URL that may hold a password, and what of it may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from chassis.errors import CannotStartError
from chassis.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

_FORM: Final = "postgresql://user:password@host:port/database"
_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")


@dataclass(frozen=True, slots=True)
class Address:
    """A PostgreSQL database: `dsn` as the driver takes it, `shown` without any secret."""

    dsn: str = field(repr=False)
    shown: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address in a URL with libpq's parameters, such as `host=/directory` and `sslmode`.

        Raises `CannotStartError` for a URL that names no database.
        """
        scheme, _, rest = url.partition("://")
        if scheme not in _SCHEMES:
            # Nor a word of this one: without a scheme it may begin with the password.
            msg = "no database engine of ours is named by the URL: use sqlite:/// or postgresql://"
            raise CannotStartError(msg)
        try:
            parts = urlsplit(f"postgresql://{rest}")
            query = parse_qs(parts.query, strict_parsing=bool(parts.query))
            host = query.get("host", [_host_list(parts.netloc)])[-1]
        except ValueError:
            host = ""
            parts = urlsplit("")
        database = parts.path.removeprefix("/")
        if not database or "/" in database or parts.fragment:
            # Not a word of the URL itself: any part of it may be a piece of the password.
            msg = (
                f"the database's URL cannot be read: it has the form {_FORM}, and special "
                "characters of the password are written as %40 for @, %2F for /, %23 for #, "
                "%3A for :, %3F for ?"
            )
            raise CannotStartError(msg)
        return cls(f"postgresql://{rest}", f"{host or 'the default host'}/{database}")


def locate(service: str, own: Secret | None, shared: Secret | None, data_dir: Path) -> Secret:
    """URL of a service's database from its `own` setting and the `shared` one; default a file.

    Raises `CannotStartError` when the shared one names a file, of which each service needs its own.
    """
    if own is None and shared is not None and is_sqlite(shared.open()):
        msg = (
            "DROVER_DATABASE_URL names one SQLite file, and each service needs its own: set "
            f"DROVER_{service.upper()}_DATABASE_URL and the like, or DROVER_DATA_DIR"
        )
        raise CannotStartError(msg)
    return own or shared or Secret(f"sqlite:///{data_dir.absolute() / f'{service}.db'}")


def is_sqlite(url: str) -> bool:
    """Whether the URL names an SQLite file."""
    return url.startswith("sqlite:")


def shown(url: str) -> str:
    """What of any database's URL may be shown. Raises `CannotStartError`."""
    return url.removeprefix("sqlite:///") if is_sqlite(url) else Address.parse(url).shown


def _host_list(netloc: str) -> str:
    hosts = netloc.rpartition("@")[2]
    for one in hosts.split(","):
        port = one.rpartition("]")[2].rpartition(":")[2] if ":" in one.rpartition("]")[2] else "1"
        if not port.isdecimal():
            msg = "no port"
            raise ValueError(msg)
    return hosts
