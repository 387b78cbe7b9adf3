"""Writes that have their effect once, however often their request comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import structlog
from google.protobuf.message import DecodeError

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.api.v1.request_key_pb2 import RequestKey
from storage.answers import BATCH, Kept, decide, forget, is_first, keep, load, lock

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from chassis.clock import Clock
    from storage import Database

T = TypeVar("T")

_SWEEP_SECONDS: Final = 30.0

_log = structlog.get_logger("storage.answers")


class Once(Protocol[T]):
    """A request whose repetition gets the first answer. `replayed` is set when it did."""

    replayed: bool

    @property
    def key(self) -> RequestKey:
        """What the request is told by."""
        ...

    def pack(self, result: T, /) -> bytes:
        """The answer that is kept."""
        ...

    def unpack(self, stored: bytes, /) -> T:
        """The result of which an answer was made."""
        ...


def asked() -> RequestKey | None:
    """What tells the request that the running call serves; `None` for one that has nothing.

    Raises INVALID_ARGUMENT for what is no key.
    """
    raw = current_call().idempotency
    if not raw:
        return None
    try:
        key = RequestKey.FromString(raw)
    except DecodeError:
        key = RequestKey()
    if not key.id or key.attempt < 0:
        raise DroverError(Reason.INVALID_ARGUMENT, "the call's idempotency key is not valid")
    return key


class _Given(NamedTuple):
    """An answer that was given before."""

    answer: bytes


class Answers:
    """Writes to a database, each of which may be one that has its effect once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def write(
        self, fn: Callable[[Connection], T], once: Once[T] | None, about: str = ""
    ) -> T:
        """Runs `fn` in a transaction, or answers what it did before for the same request.

        `about` names what is deleted together with the answer. Raises what `fn` raises, and nothing
        is kept then; CONFLICT and NOT_FOUND as `decide`.
        """
        if once is None:
            return await self._database.write(fn)

        def write(connection: Connection) -> T | _Given:
            return self._answer(connection, fn, once, about)

        outcome = await self._database.write(write)
        if not isinstance(outcome, _Given):
            return outcome
        once.replayed = True
        return once.unpack(outcome.answer)

    def _answer(
        self, connection: Connection, fn: Callable[[Connection], T], once: Once[T], about: str
    ) -> T | _Given:
        key = once.key
        lock(connection, [key])
        now = self._now()
        kept = load(connection, key)
        answer = decide(kept, key, now)
        if answer is None:
            result = fn(connection)
            keep(connection, [Kept.of(key, now, once.pack(result), about)])
            return result
        if kept is not None and is_first(key):
            # It stands for this attempt now: another first attempt is a request of its own.
            keep(connection, [Kept.of(key, now, answer, kept.about)])
        return _Given(answer)

    async def sweep(self) -> None:
        """Removes expired answers, now and then, for ever."""

        def some(connection: Connection) -> int:
            return forget(connection, self._now())

        await sweeping(lambda: self._database.write(some))

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000)


async def sweeping(forget_some: Callable[[], Awaitable[int]]) -> None:
    """Has expired answers removed, a batch a transaction, now and then, for ever."""
    while True:
        try:
            while await forget_some() >= BATCH:
                pass
        except DroverError as error:
            _log.warning("answers_not_swept", reason=error.reason)
        await asyncio.sleep(_SWEEP_SECONDS)
