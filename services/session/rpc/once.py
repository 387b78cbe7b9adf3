"""Calls that have their effect once, however often their request comes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from chassis.context import REPLAYED_KEY
from services.session.domain.ports import UNKNOWN
from storage.answers import is_first
from storage.once import asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.news import News
    from services.session.domain.ports import About, Transaction
    from services.session.rpc.parts import Context, Parts

M = TypeVar("M", bound="Message")


class Answering(Protocol):
    """What keeps answers, of any transaction: see `domain.ports.Transaction`."""

    def answer(self, key: RequestKey) -> bytes | None:
        """What a request was answered before."""
        ...

    def keep_answer(self, key: RequestKey, answer: bytes, session_id: str) -> None:
        """Keeps an answer."""
        ...


@dataclass(frozen=True, slots=True)
class Once(Generic[M]):
    """A call that is answered by a message of `kind`: as it was before, if its request was.

    `session_id` tells which session an answer is about. The answer goes with that; one that is
    about none stays for its time. Made in the call's own task, which knows what is `asked`: raises
    INVALID_ARGUMENT for what is no key.
    """

    parts: Parts
    context: Context
    kind: type[M]
    session_id: Callable[[M], str]
    key: RequestKey | None = field(default_factory=asked)

    async def earlier(self) -> M | None:
        """The answer that was given before, for a call that must ask others before it commits.

        Raises CONFLICT and NOT_FOUND as `Transaction.answer`.
        """
        key = self.key
        if key is None or is_first(key):
            return None
        kept = await self.parts.store.read(lambda tx: tx.answer(key))
        if kept is None:
            return None
        self.tell()
        return self.kind.FromString(kept)

    async def commit(
        self,
        fn: Callable[[Transaction], tuple[M, News | None]],
        *,
        about: About = UNKNOWN,
    ) -> tuple[M, bool]:
        """Commits what `fn` does; answers its message, and whether it was done now.

        Raises what `fn` raises, and as `earlier`.
        """
        if self.key is None:
            return await self.parts.commits.write(fn, about=about), True

        def write(tx: Transaction) -> tuple[tuple[M, bool], News | None]:
            if (before := self.before(tx)) is not None:
                return (before, False), None
            answer, news = fn(tx)
            self.keep(tx, answer)
            return (answer, True), news

        answer, new = await self.parts.commits.write(
            write, about=dataclasses.replace(about, key=self.key)
        )
        if not new:
            self.tell()
        return answer, new

    def before(self, tx: Answering) -> M | None:
        """The answer that was given before; nothing else may be done in the transaction then."""
        if self.key is None or (kept := tx.answer(self.key)) is None:
            return None
        answer = self.kind.FromString(kept)
        if is_first(self.key):
            # It stands for this attempt now: another first attempt is a request of its own.
            tx.keep_answer(self.key, kept, self.session_id(answer))
        return answer

    def keep(self, tx: Answering, answer: M) -> None:
        """Keeps the answer to what the transaction does."""
        if self.key is not None:
            tx.keep_answer(self.key, answer.SerializeToString(), self.session_id(answer))

    def tell(self) -> None:
        """Has the caller know that its answer is one given before."""
        self.context.set_trailing_metadata(((REPLAYED_KEY, "true"),))
