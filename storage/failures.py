"""What an engine's exceptions mean: one table for both drivers and for SQLAlchemy around them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from sqlalchemy import exc

from chassis.errors import DroverError, Reason

_RETRY_SECONDS: Final = 1.0

# SQLSTATEs (PostgreSQL manual, appendix A), by class or whole. A transaction that these end was
# not committed.
_GONE: Final = ("08", "57P01", "57P02", "57P03", "25P03", "53300", "57014", "55P03", "25006")
_CONFLICT: Final = ("40001", "40P01")
_FULL: Final = ("53100", "53200", "53400", "58030")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction failed. `again` says that the same one may succeed if it is run again."""

    error: DroverError
    again: bool


def explain(cause: BaseException) -> Failure | None:
    """What an exception out of a transaction means; `None` for one that is not the database's."""
    if isinstance(cause, exc.TimeoutError):  # no connection came free
        return _unavailable("every connection to the database is busy", again=False)
    if isinstance(cause, exc.DBAPIError) and cause.orig is not None:
        cause = cause.orig
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    state = _sqlstate(cause)
    if state.startswith(_FULL):
        return Failure(_full(), again=False)
    if state.startswith(_CONFLICT):
        return _unavailable("the transaction met another one", again=True)
    if state.startswith(_GONE) or isinstance(cause, (OSError, TimeoutError)) or _is_lost(cause):
        return _unavailable("the database does not answer", again=True)
    return None


def _of_sqlite(cause: sqlite3.Error) -> Failure | None:
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or "disk I/O error" in str(cause):
        return Failure(_full(), again=False)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN}:
        return _unavailable("the database does not answer", again=False)
    return None


def _sqlstate(cause: BaseException) -> str:
    """The code of a driver's exception, or of the one that an adapter has wrapped."""
    for one in (cause, cause.__cause__):
        state = getattr(one, "sqlstate", None)
        if isinstance(state, str):
            return state
    return ""


def _is_lost(cause: BaseException) -> bool:
    """Whether the connection went away under a statement: asyncpg has no one class for that."""
    names = {type(one).__name__ for one in (cause, cause.__cause__) if one is not None}
    return bool(names & {"ConnectionDoesNotExistError", "InterfaceError", "InternalClientError"})


def _unavailable(message: str, *, again: bool) -> Failure:
    error = DroverError(Reason.UNAVAILABLE, message, retry_after=_RETRY_SECONDS)
    return Failure(error, again)


def _full() -> DroverError:
    return DroverError(
        Reason.RESOURCE_EXHAUSTED,
        "the database has no room left: nothing was stored",
        retry_after=_RETRY_SECONDS,
    )
