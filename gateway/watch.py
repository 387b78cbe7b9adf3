"""Streams, which end when the keys do that opened them.

A request asks whose key it carries; a stream would outlive that. So each open stream is asked about
again and again.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from chassis.errors import DroverError
from drover.api.v1.annotations_pb2 import KEY_KIND_API

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chassis.clock import Clock
    from gateway.access import Access
    from gateway.auth import Caller

_log = structlog.get_logger("gateway.watch")


class Watches:
    """Asks every so many `seconds` whether callers may still follow. Its tasks are `group`'s.

    While nobody answers, a stream goes on for `patience` seconds at most.
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
        if caller.kind == KEY_KIND_API and not caller.may_end:  # the gateway's own
            yield
            return
        task = self._group.create_task(self._watch(caller, end))
        try:
            yield
        finally:
            task.cancel()

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
