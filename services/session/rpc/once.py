"""Calls that have their effect once, however often their request comes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from chassis.context import REPLAYED_KEY
from services.session.domain.ports import UNKNOWN
from storage.answers import is_first
from storage.once import asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from services.session.domain.news import News
    from services.session.domain.ports import About, Transaction
    from services.session.rpc.parts import Context, Parts

M = TypeVar("M", bound="Message")


@dataclass(frozen=True, slots=True)
class Once(Generic[M]):
    """A call that is answered by a message of `kind`: as it was before, if its request was.

    `session_id` tells which session an answer is about. The answer goes with that; one that is
    about none stays for its time.
    """

    parts: Parts
    context: Context
    kind: type[M]
    session_id: Callable[[M], str]

    async def earlier(self) -> M | None:
        """The answer that was given before, for a call that must ask others before it commits.

        Raises CONFLICT and NOT_FOUND as `Transaction.answer`, INVALID_ARGUMENT for what is no key.
        """
        key = asked()
        if key is None or is_first(key):
            return None
        kept = await self.parts.store.read(lambda tx: tx.answer(key))
        if kept is None:
            return None
        self._tell()
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
        key = asked()
        if key is None:
            return await self.parts.commits.write(fn, about=about), True

        def write(tx: Transaction) -> tuple[tuple[M, bool], News | None]:
            if (kept := tx.answer(key)) is None:
                answer, news = fn(tx)
                tx.keep_answer(key, answer.SerializeToString(), self.session_id(answer))
                return (answer, True), news
            answer = self.kind.FromString(kept)
            if is_first(key):
                # It stands for this attempt now: another first attempt is a request of its own.
                tx.keep_answer(key, kept, self.session_id(answer))
            return (answer, False), None

        answer, new = await self.parts.commits.write(
            write, about=dataclasses.replace(about, key=key)
        )
        if not new:
            self._tell()
        return answer, new

    def _tell(self) -> None:
        self.context.set_trailing_metadata(((REPLAYED_KEY, "true"),))
