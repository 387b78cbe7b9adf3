"""An event loop with virtual time, several processes in it, and an order drawn from a seed.

Within a process callbacks keep the order that asyncio promises; whose turn it is, and for how many
callbacks, is drawn. A process that dies is never scheduled again: what it was doing stops at the
await where it is, and no `finally` of it runs. A paused one only falls behind.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
from asyncio import events
from collections import deque
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

START = datetime(2026, 11, 29, 12, tzinfo=UTC)

_BURST = 6
"""So many callbacks a process runs at a time, at most."""
_FUNERAL_STEPS = 20_000


class DeadlockError(Exception):
    """Everybody waits for nothing."""


class Life:
    """One run of a process, from its start to its death."""

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number
        self.ready: deque[events.Handle] = deque()
        self.dead = False
        self.paused = False
        # It is on its way out, in good order, and takes no new calls.
        self.stopping = False
        # Callbacks until it dies; below zero, it does not.
        self.steps_left = -1
        self.on_death: Callable[[Life], None] | None = None
        self._base = Context()
        self._base.run(_LIFE.set, self)

    def __repr__(self) -> str:
        return f"{self.name}.{self.number}" if self.number else self.name

    def context(self) -> Context:
        """A context for something that this process begins by itself."""
        return self._base.copy()

    @property
    def runs(self) -> bool:
        return not self.dead and not self.paused


_NOBODY = object()
_LIFE: ContextVar[Any] = ContextVar("life", default=_NOBODY)


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set does not depend on its address."""

    _numbers = itertools.count(1)

    def __init__(self, coro: Any, **options: Any) -> None:
        self._number = next(SimTask._numbers)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    """As `SimTask`."""

    _numbers = itertools.count(1)

    def __init__(self, **options: Any) -> None:
        self._number = next(SimFuture._numbers)
        super().__init__(**options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """Also the clock of everybody: `now`, `monotonic`."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        SimTask._numbers = itertools.count(1)
        SimFuture._numbers = itertools.count(1)
        self._rng = rng
        self._at = 0.0
        self._timers: list[tuple[float, int, events.TimerHandle, Life]] = []
        self._numbers = itertools.count(1)
        self._runnable: list[Life] = []
        self._everyone: list[asyncio.Task[Any]] = []
        self._home = Life("world")
        self.steps = 0
        self.failures: list[str] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note)

    # the clock

    def time(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at

    def now(self) -> datetime:
        return START + timedelta(seconds=self._at)

    # scheduling

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def _make_task(self, loop: Any, coro: Any, context: Context | None = None) -> Any:
        task = SimTask(coro, loop=loop, context=context)
        self._everyone.append(task)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        handle = events.Handle(callback, args, self, context)
        self._queue(self._life_of(context), handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        if context is None:
            context = copy_context()
        handle = events.TimerHandle(when, callback, args, self, context)
        entry = (when, next(self._numbers), handle, self._life_of(context))
        heapq.heappush(self._timers, entry)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self._at + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _life_of(self, context: Context) -> Life:
        life = context.get(_LIFE, _NOBODY)
        return self._home if life is _NOBODY else life

    def _queue(self, life: Life, handle: events.Handle) -> None:
        life.ready.append(handle)
        if len(life.ready) == 1 and life.runs and life not in self._runnable:
            self._runnable.append(life)

    def resume(self, life: Life) -> None:
        """Lets a paused process go on."""
        life.paused = False
        if life.ready and not life.dead and life not in self._runnable:
            self._runnable.append(life)

    def _run_once(self) -> None:
        if not self._runnable:
            self._jump()
            return
        at = int(self._rng.random() * len(self._runnable))
        life = self._runnable[at]
        if not life.runs:
            del self._runnable[at]
            return
        for _ in range(1 + int(self._rng.random() * _BURST)):
            handle = life.ready.popleft()
            if not handle._cancelled:
                self.steps += 1
                handle._run()
            if life.steps_left > 0:
                life.steps_left -= 1
                if not life.steps_left and life.on_death is not None:
                    life.on_death(life)
            if not life.ready or not life.runs or self._stopping:
                break
        if not life.ready or not life.runs:
            self._runnable.remove(life)

    def _jump(self) -> None:
        """Goes to the time of the next timer that is not cancelled."""
        timers = self._timers
        while timers:
            when, _, handle, life = heapq.heappop(timers)
            if handle._cancelled:
                continue
            self._at = max(self._at, when)
            self._queue(life, handle)
            if not (timers and timers[0][0] <= self._at):
                return
        if not self._runnable:
            raise DeadlockError("everybody waits for nothing")

    # processes

    def spawn(self, life: Life, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs something as part of a process."""
        return self.create_task(coro, context=life.context())

    def _note(self, _loop: Any, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def bury(self, lives: list[Life]) -> None:
        """Ends whatever is still there, so that nothing of this run is left to the next one."""
        self.set_exception_handler(lambda *_: None)
        for life in lives:
            life.dead, life.steps_left = False, -1
            life.on_death = None
            self.resume(life)
        left = [task for task in self._everyone if not task.done()]
        for _ in range(20):
            if not left:
                break
            for task in left:
                task.cancel()
            until = self.steps + _FUNERAL_STEPS
            with suppress(DeadlockError):
                self._drain(until)
            left = [task for task in left if not task.done()]
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._everyone.clear()
        self._timers.clear()

    def _drain(self, until: int) -> None:
        events._set_running_loop(self)
        try:
            idle = 0
            while self.steps < until and idle < 50:
                if not self._runnable:
                    idle += 1
                self._run_once()
        finally:
            events._set_running_loop(None)

    # asyncio's own

    def run_forever(self) -> None:
        """As asyncio's, without a collection of garbage: its moment is no function of the seed."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if collecting:
                gc.enable()

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        raise NotImplementedError

    def run_in_executor(self, *_given: Any) -> Any:
        msg = "threads have no place in a simulation"
        raise RuntimeError(msg)
