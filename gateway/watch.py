"""Streams and transfers, which end when the keys do that opened them.

A request asks whose key it carries when it begins. What goes on for long would outlive that, and a
body that comes slowly be taken when its key is none any more. So these are asked about again.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from chassis.errors import DroverError
from drover.api.v1.annotations_pb2 import KEY_KIND_API

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from chassis.clock import Clock
    from gateway.access import Access
    from gateway.auth import Caller

T = TypeVar("T")
_log = structlog.get_logger("gateway.watch")


class Watches:
    """Asks every so many `seconds` whether callers may go on. Its tasks are `group`'s.

    While nobody answers, what is open goes on for `patience` seconds at most.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        access: Access,
        seconds: float,
        patience: float,
        clock: Clock,
    ) -> None:
        self._group = group
        self._access = access
        self._seconds = seconds
        self._patience = patience
        self._clock = clock

    @contextmanager
    def over(self, caller: Caller, end: Callable[[Exception], None]) -> Iterator[None]:
        """Calls `end` with the refusal when `caller` may not go on while the body runs."""
        if _is_own(caller):
            yield
            return
        task = self._group.create_task(self._watch(caller, end))
        try:
            yield
        finally:
            task.cancel()

    async def outlast(self, caller: Caller, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. Cancels it, and raises the refusal, when `caller` may not go on."""
        task, refused = asyncio.current_task(), list[Exception]()

        def end(error: Exception) -> None:
            refused.append(error)
            if task is not None:
                task.cancel()

        with self.over(caller, end):
            try:
                return await work
            except asyncio.CancelledError:
                if refused and task is not None and not task.uncancel():
                    raise refused[0] from None
                raise

    async def confirm(self, caller: Caller, since: float) -> None:
        """Raises the refusal if `caller`, who was let in at `since`, may not go on.

        Nobody is asked about one who was let in just now.
        """
        if self._clock.monotonic() - since > self._seconds and not _is_own(caller):
            await self._access.confirm(caller)

    async def _watch(self, caller: Caller, end: Callable[[Exception], None]) -> None:
        answered = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._pause(caller))
            try:
                await self._access.confirm(caller)
            except DroverError as error:
                silence = self._clock.monotonic() - answered
                if not error.rule.retryable or silence > self._patience:
                    end(error)
                    return
            except Exception as error:  # noqa: BLE001  # the gateway's tasks are one group
                _log.exception("watch_failed")
                end(error)
                return
            else:
                answered = self._clock.monotonic()

    def _pause(self, caller: Caller) -> float:
        """Seconds until a caller is asked about again: no later than its key expires."""
        if caller.expires_at is None:
            return self._seconds
        left = (caller.expires_at - self._clock.now()).total_seconds()
        return max(0.0, min(self._seconds, left))


def _is_own(caller: Caller) -> bool:
    """Whether the key is the gateway's own, which ends with it."""
    return caller.kind == KEY_KIND_API and not caller.may_end
