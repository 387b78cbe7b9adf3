"""Why a database cannot be used, in one line for whoever runs Drover."""

from __future__ import annotations

import socket
import sqlite3
import ssl
from typing import Final

from chassis.errors import CannotStartError
from storage.failures import driver_error

# By SQLSTATE or its class (PostgreSQL manual, appendix A).
_STATES: Final = {
    "25006": "PostgreSQL at {at} is read-only: name the primary",
    "28": "PostgreSQL at {at} refuses the user: check name and password in the URL ({said})",
    "3D000": "there is no database {at}: make it with `createdb`",
    "42501": "the user may not do this in {at}: GRANT CREATE ON DATABASE to it ({said})",
    "42704": "PostgreSQL at {at} does not know a parameter of the URL ({said})",
    "53100": "the disk of PostgreSQL at {at} is full",
    "53300": "PostgreSQL at {at} has no connection left: raise max_connections",
    "55P03": "another transaction holds a lock in {at} for too long: end it and try again",
    "57P03": "PostgreSQL at {at} is starting up: try again in a moment",
}

_SQLITE: Final = {
    sqlite3.SQLITE_FULL: "there is no room for the database {at}: make room on its disk",
    sqlite3.SQLITE_IOERR: "the database {at} cannot be written: is its disk full? ({said})",
    sqlite3.SQLITE_CANTOPEN: "the database {at} cannot be opened: is its directory there, and "
    "may this user write to it?",
    sqlite3.SQLITE_READONLY: "the database {at} is read-only to this user: give it the file",
    sqlite3.SQLITE_CORRUPT: "the database {at} is damaged: restore it from a back-up",
    sqlite3.SQLITE_NOTADB: "{at} is no database: restore it from a back-up",
}

# The first that fits.
_CLASSES: Final = (
    (socket.gaierror, "the host of {at} is not known: check the URL"),
    (ssl.SSLError, "no TLS with PostgreSQL at {at}, see sslmode and sslrootcert: {said}"),
    (TimeoutError, "PostgreSQL at {at} does not answer: is it running, and reachable from here?"),
    (OSError, "no PostgreSQL listens at {at}: start it, or check the URL"),
)
_OF_THE_URL: Final = "ClientConfigurationError"  # asyncpg's


def refusal(cause: BaseException, at: str) -> CannotStartError:
    """The error to raise from what went wrong with the database that is shown as `at`."""
    while isinstance(cause, Exception) and not isinstance(cause, CannotStartError):
        under = driver_error(cause)
        if (text := _text(under)) is not None:
            said = str(under).partition("\n")[0]
            return CannotStartError(text.format(at=at, said=said))
        if not isinstance(under.__cause__, Exception):
            return CannotStartError(
                f"the database {at} cannot be used: {type(under).__name__}: {under}"
            )
        cause = under.__cause__
    return cause if isinstance(cause, CannotStartError) else CannotStartError(str(cause))


def _text(cause: BaseException) -> str | None:
    if isinstance(cause, sqlite3.Error):
        return _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str):
        return _STATES.get(state) or _STATES.get(state[:2])
    if type(cause) is ConnectionError:  # asyncpg's own, of TLS that is asked for and not had
        return "the database {at} cannot be used, see sslmode: {said}"
    if type(cause).__name__ == _OF_THE_URL:
        return "the database's URL cannot be used: {said}"
    return next((text for kind, text in _CLASSES if isinstance(cause, kind)), None)
