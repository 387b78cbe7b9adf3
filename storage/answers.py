"""Answers kept under their requests, so that a repetition has no second effect.

An answer is kept in the transaction of the effect: either both are there or neither. For the
client's own keys it is kept for a day. Without one, a repetition is told by what it says again and
by the client's count of its attempts, and only for as long as a client keeps at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    select,
    text,
    update,
)

from chassis.errors import DroverError, Reason
from storage.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Self

    from sqlalchemy import Connection

    from drover.api.v1.request_key_pb2 import RequestKey

_MICROS: Final = 1_000_000
_NAMED_MICROS: Final = 24 * 3600 * _MICROS
_COUNTED_MICROS: Final = 120 * _MICROS

# The official client waits 0.375 s at the least before it repeats a request (its first pause is
# half a second, less up to a quarter). Half of that is left to the clocks of gateways and database.
_FIRST_PAUSE_MICROS: Final = _MICROS // 5

BATCH: Final = 500
"""Expired answers that one transaction removes."""

ANSWERS: Final = Table(
    "answers",
    MetaData(),
    Column("id", LargeBinary, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("answered_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    # The id of what the answer tells about: with that, the answer goes too, and this is empty.
    Column("about", String, nullable=False),
    Column("answer", LargeBinary),
    Index("answers_by_expiry", "expires_at"),
    Index("answers_by_what_they_tell_about", "about"),
)
"""For a service's own metadata: `ANSWERS.to_metadata(metadata)`. Times are Unix microseconds."""

_C = ANSWERS.c

_LOCK = Prepared(text("SELECT pg_advisory_xact_lock(:number)"))
_TRY = Prepared(
    text(
        "SELECT number FROM unnest(CAST(:numbers AS BIGINT[])) AS number"
        " WHERE pg_try_advisory_xact_lock(number)"
    )
)
_LOAD = Prepared(select(ANSWERS).where(_C.id == bindparam("key")))
_LOAD_EACH = Prepared(text("SELECT * FROM answers WHERE id = ANY(CAST(:keys AS BYTEA[]))"))
_KEEP = Prepared(
    text(
        "INSERT INTO answers (id, fingerprint, attempt, answered_at, expires_at, about, answer)"
        " VALUES (:id, :fingerprint, :attempt, :answered_at, :expires_at, :about, :answer)"
        " ON CONFLICT (id) DO UPDATE SET"
        " fingerprint = excluded.fingerprint, attempt = excluded.attempt,"
        " answered_at = excluded.answered_at, expires_at = excluded.expires_at,"
        " about = excluded.about, answer = excluded.answer"
    )
)
_WITHDRAW = update(ANSWERS).where(_C.about == bindparam("subject")).values(answer=None, about="")
_FORGET = delete(ANSWERS).where(
    _C.id.in_(
        select(_C.id)
        .where(_C.expires_at <= bindparam("now"))
        .order_by(_C.expires_at)
        .limit(bindparam("most", type_=Integer))
        .with_for_update(skip_locked=True)  # of two replicas that sweep, neither waits
    )
)


class Kept(NamedTuple):
    """A kept answer, a row; `answer` is `None` once what it tells about was deleted."""

    id: bytes
    fingerprint: bytes
    attempt: int
    answered_at: int
    expires_at: int
    about: str
    answer: bytes | None

    @classmethod
    def of(cls, key: RequestKey, now: int, answer: bytes, about: str) -> Self:
        """What is kept of an answer that is given now. `about` names what it tells about."""
        expires_at = now + (_NAMED_MICROS if key.fingerprint else _COUNTED_MICROS)
        return cls(key.id, key.fingerprint, key.attempt, now, expires_at, about, answer)


def lock(connection: Connection, keys: Iterable[RequestKey]) -> None:
    """Has every other transaction with one of these keys wait for the end of this one."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer
        for number in sorted({_number(key) for key in keys}):
            _LOCK.execute(connection, {"number": number})


def try_lock(connection: Connection, keys: Iterable[RequestKey]) -> set[bytes]:
    """As `lock`, without waiting for others; answers the ids that are locked. PostgreSQL only."""
    numbers = {_number(key): key.id for key in keys}
    rows = _TRY.execute(connection, {"numbers": list(numbers)})
    return {numbers[number] for (number,) in rows}


def _number(key: RequestKey) -> int:
    """The advisory lock of a key in PostgreSQL."""
    return int.from_bytes(key.id[:8], "big", signed=True)


def load(connection: Connection, key: RequestKey) -> Kept | None:
    """What is kept under a key, be it expired."""
    rows = _LOAD.execute(connection, {"key": key.id})
    return Kept(*rows[0]) if rows else None


def load_each(connection: Connection, ids: Collection[bytes]) -> dict[bytes, Kept]:
    """What is kept under keys, be it expired, by their ids. PostgreSQL only."""
    rows = _LOAD_EACH.execute(connection, {"keys": list(ids)})
    return {row[0]: Kept(*row) for row in rows}


def decide(kept: Kept | None, key: RequestKey, now: int) -> bytes | None:
    """The answer that the request gets again; `None` for one that is to have its effect.

    Raises CONFLICT for a client's key that another request had, and NOT_FOUND when what the answer
    tells about was deleted since.
    """
    if kept is None or kept.expires_at <= now:
        return None
    if kept.fingerprint != key.fingerprint:
        raise DroverError(
            Reason.CONFLICT, "Idempotency-Key: the key was used for another request before"
        )
    if is_first(key) and not _overtook(kept, key):
        return None
    if kept.answer is None:
        raise DroverError(Reason.NOT_FOUND, "what the request had made was deleted since")
    return kept.answer


def is_first(key: RequestKey) -> bool:
    """Whether the client counts its attempts, and this is the first one."""
    return not key.fingerprint and not key.attempt


def _overtook(kept: Kept, key: RequestKey) -> bool:
    """Whether the repetition of a first attempt had its effect before the attempt itself.

    Two first attempts are two requests, however alike. But when an attempt was held up on its way,
    the client may have given up on it and have repeated it by another: that one's answer is then
    both's. It came later than the attempt reached the gateway, by a pause at least.
    """
    received_at = key.received_at.ToMicroseconds()
    return kept.attempt > 0 and kept.answered_at >= received_at + _FIRST_PAUSE_MICROS


def keep(connection: Connection, rows: Collection[Kept]) -> None:
    """Keeps answers in place of any earlier ones, in one round trip."""
    _KEEP.execute_rows(connection, list(rows))


def withdraw(connection: Connection, about: str) -> None:
    """Removes what the kept answers say about something that is deleted, and its name."""
    connection.execute(_WITHDRAW, {"subject": about})


def forget(connection: Connection, now: int, most: int = BATCH) -> int:
    """Removes so many expired answers at most; returns how many there were."""
    return connection.execute(_FORGET, {"now": now, "most": most}).rowcount
