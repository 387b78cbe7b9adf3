"""Transactions whose news is told once it is durable, whatever becomes of the caller."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import structlog

from services.session.domain.ports import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.session.domain.news import News
    from services.session.domain.ports import About, SessionStore, Transaction

T = TypeVar("T")

_log = structlog.get_logger("session.commits")


class Listener(Protocol):
    """Hears of what was committed. Must not wait: it is told between two commits."""

    def hear(self, news: News) -> None:
        """Takes note of one transaction."""
        ...


class Commits:
    """Writes to the store, and tells the listeners in the order of the commits.

    `listeners` hear of a commit before its caller goes on, `readers` behind that: whoever waits for
    an acknowledgement is not kept by those who only look on.

    A caller may be cancelled while its transaction is on the way; the news is told all the same.
    Used as an async context manager, which ends once every transaction is done.
    """

    def __init__(
        self, store: SessionStore, listeners: Sequence[Listener], readers: Sequence[Listener] = ()
    ) -> None:
        self._store = store
        self._listeners = listeners
        self._readers = readers
        self._under_way: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def write(
        self,
        fn: Callable[[Transaction], tuple[T, News | None]],
        *,
        about: About = UNKNOWN,
        then: Callable[[T], None] | None = None,
    ) -> T:
        """Runs `fn` in a transaction and tells its news. Raises what `fn` raises.

        `about` is the store's; `then` is called with the result before any later transaction is
        told of.
        """
        # Two futures and no task: every append waits for this.
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        written = self._store.submit(fn, about=about)
        self._under_way.add(written)
        written.add_done_callback(partial(self._conclude, then, outcome))
        return await outcome

    def _conclude(
        self,
        then: Callable[[T], None] | None,
        outcome: asyncio.Future[T],
        written: asyncio.Future[tuple[T, News | None]],
    ) -> None:
        """Tells what was committed, in the order of the commits, and then the caller."""
        self._under_way.discard(written)
        try:
            result, news = written.result()
            if then is not None:
                then(result)
        except asyncio.CancelledError:
            outcome.cancel()
            return
        except Exception as error:  # noqa: BLE001  # the caller's
            if not outcome.done():
                outcome.set_exception(error)
            return
        if news is not None:
            self._tell(self._listeners, news)
        # Its caller is scheduled here, before what the readers are woken for.
        if not outcome.done():
            outcome.set_result(result)
        if news is not None:
            self._tell(self._readers, news)

    @staticmethod
    def _tell(listeners: Sequence[Listener], news: News) -> None:
        for listener in listeners:
            try:
                listener.hear(news)
            except Exception:  # noqa: BLE001  # what is durable is acknowledged all the same
                _log.exception("news_unheard", session_id=news.ref.session_id)
