"""An event loop whose clock jumps to the next timer as soon as there is nothing else to do."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Timers cost no time, and fire in their order. Waiting for nothing at all is an error."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """As `chassis.clock.Clock` has it."""
        return self.now


def in_virtual_time(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """A test that runs on a `VirtualLoop` of its own."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*given, **named))

    return run


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            msg = "everybody waits for nothing"
            raise RuntimeError(msg)
        self._loop.now += max(0.0, timeout)
        return super().select(0)
