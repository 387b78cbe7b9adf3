"""What an engine's exceptions mean: one table for both drivers and for SQLAlchemy around them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from sqlalchemy import exc

from chassis.errors import DroverError, Reason

PATIENCE: Final = 6.0
"""Seconds for which a transaction is tried before its caller is told UNAVAILABLE. Longer than a
restart of the server takes, and well within the deadlines of those who call."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction failed. `again` says that the same one may succeed if it is run again."""

    error: DroverError
    again: bool


@dataclass(frozen=True, slots=True)
class _Meaning:
    reason: Reason
    message: str
    again: bool

    def failure(self) -> Failure:
        retry_after = _RETRY_SECONDS if self.reason is not Reason.INVALID_ARGUMENT else None
        return Failure(DroverError(self.reason, self.message, retry_after=retry_after), self.again)


_SILENT: Final = "the database does not answer"
_GONE: Final = _Meaning(Reason.UNAVAILABLE, _SILENT, again=True)
_LOCKED: Final = _Meaning(Reason.UNAVAILABLE, _SILENT, again=False)
_CONFLICT: Final = _Meaning(Reason.UNAVAILABLE, "the transaction met another one", again=True)
_REFUSED: Final = _Meaning(Reason.UNAVAILABLE, "the database does not let us in", again=False)
_STANDBY: Final = _Meaning(Reason.UNAVAILABLE, "the database is read-only", again=True)
_FULL: Final = _Meaning(
    Reason.RESOURCE_EXHAUSTED, "the database has no room left: nothing was stored", again=False
)
_NO_TEXT: Final = _Meaning(
    Reason.INVALID_ARGUMENT, "text cannot hold the character U+0000", again=False
)

# By SQLSTATE or its class (PostgreSQL manual, appendix A). A transaction that these end was not
# committed.
_STATES: Final = {
    "08": _GONE,
    "22021": _NO_TEXT,
    "25006": _STANDBY,
    "25P03": _GONE,  # idle in its transaction for too long
    "28": _REFUSED,  # the user's password was changed
    "3D000": _REFUSED,  # the database was renamed
    "40001": _CONFLICT,
    "40P01": _CONFLICT,
    "53100": _FULL,
    "53200": _FULL,
    "53300": _GONE,  # no connection is left for us
    "53400": _FULL,
    "55P03": _CONFLICT,  # a lock was not to be had in time
    "57014": _GONE,  # it took too long
    "57P01": _GONE,
    "57P02": _GONE,
    "57P03": _GONE,
    "57P05": _GONE,
    "58030": _FULL,
}
_SQLITE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _FULL,  # a quota shows as a write that failed
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: _LOCKED,
}
# asyncpg's, of a connection that went away under a statement, for which it has no one class, and
# of a table that was migrated under it.
_LOST: Final = {
    "ConnectionDoesNotExistError",
    "InterfaceError",
    "InternalClientError",
    "InvalidCachedStatementError",
    "OutdatedSchemaCacheError",
}


def explain(cause: BaseException, *, reading: bool = False) -> Failure | None:
    """What an exception out of a transaction means; `None` for one that is not the database's.

    `reading` says that the transaction was one that may not write.
    """
    cause = driver_error(cause)
    meaning: _Meaning | None
    if isinstance(cause, sqlite3.Error):
        meaning = _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
        meaning = None if reading and meaning is _FULL else meaning
    else:
        state = getattr(cause, "sqlstate", None) or ""
        meaning = _STATES.get(state) or _STATES.get(state[:2])
        if meaning is None and (isinstance(cause, OSError) or type(cause).__name__ in _LOST):
            meaning = _GONE
        meaning = None if reading and meaning is _STANDBY else meaning
    return meaning.failure() if meaning else None


def unsent(cause: BaseException) -> bool:
    """Whether the driver refused a statement before it sent it, busy with the server's farewell."""
    return type(cause).__name__ == "InternalClientError"


def driver_error(cause: BaseException) -> BaseException:
    """The driver's own exception, where SQLAlchemy or its adapter has made another of it."""
    if isinstance(cause, exc.DBAPIError) and cause.orig is not None:
        cause = cause.orig
    under = cause.__cause__
    return under if under is not None and type(under).__module__.startswith("asyncpg") else cause
