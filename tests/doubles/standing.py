"""Where everything stands while a test hangs: every thread, and every task of every event loop."""

from __future__ import annotations

import asyncio
import gc
import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Any

_KINDS = {"cr": "cr_await", "ag": "ag_await", "gi": "gi_yieldfrom"}
"""By the prefix of its attributes, where a coroutine or generator has what it waits for."""
_HIDDEN = (CoroutineType, AsyncGeneratorType)
_INNERMOST = 12
"""Frames that are told of each thread."""


def stacks() -> str:
    """What every thread does, and what every unfinished task waits for, from the outside in."""
    lines: list[str] = []
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            lines.append(f"thread {names.get(ident, ident)}")
            lines += [f"  {_place(one)}" for one in _frames(frame)]
    for loop in _loops():
        for task in asyncio.all_tasks(loop):
            lines.append(f"task {task.get_name()}")
            lines += [f"  {step}" for step in _awaited(task.get_coro())]
    return "\n".join(lines)


class Watch:
    """Tells where everything stands shortly before somebody's time is up. A thread of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: tuple[float, Callable[[str], None]] | None = None
        threading.Thread(target=self._run, name="hang-watch", daemon=True).start()

    @contextmanager
    def over(self, seconds: float, tell: Callable[[str], None]) -> Iterator[None]:
        """Has `tell` called if the block takes longer than `seconds`."""
        self._set((time.monotonic() + seconds, tell))
        try:
            yield
        finally:
            self._set(None)

    def _set(self, due: tuple[float, Callable[[str], None]] | None) -> None:
        with self._changed:
            self._due = due
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._due
                left = None if due is None else due[0] - time.monotonic()
                if due is None or (left is not None and left > 0):
                    self._changed.wait(left)
                    continue
                self._due = None
            due[1](stacks())


class PromptExit(AsyncExitStack):
    """An exit stack that has so long to close, and else says what it waits for."""

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds

    async def __aexit__(self, *error: object) -> bool:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        look = loop.call_later(self._seconds, lambda: told.append(stacks()))
        try:
            async with asyncio.timeout(self._seconds + 1):
                return bool(await super().__aexit__(*error))
        except TimeoutError:
            if not told:
                raise
            raise AssertionError(f"not closed within {self._seconds} s:\n{told[0]}") from None
        finally:
            look.cancel()


def _frames(frame: FrameType | None) -> list[FrameType]:
    found: list[FrameType] = []
    while frame is not None and len(found) < _INNERMOST:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _place(frame: FrameType) -> str:
    code, number = frame.f_code, frame.f_lineno
    line = linecache.getline(code.co_filename, number).strip() if number else ""  # compiled code
    return f"{code.co_filename}:{number} {code.co_name}: {line}"


def _loops() -> list[asyncio.AbstractEventLoop]:
    # By its type: some objects answer `isinstance` with a surprise.
    every = [one for one in gc.get_objects() if issubclass(type(one), asyncio.AbstractEventLoop)]
    return [loop for loop in every if loop.is_running()]


def _awaited(awaitable: Any) -> Iterator[str]:
    """The place of what is awaited, and those of what that awaits."""
    while awaitable is not None:
        kind = next((kind for kind in _KINDS if hasattr(awaitable, f"{kind}_frame")), None)
        if kind is not None:
            frame = getattr(awaitable, f"{kind}_frame")
            yield repr(awaitable) if frame is None else _place(frame)
            awaitable = getattr(awaitable, _KINDS[kind])
            continue
        # What `__await__` and `__anext__` answer shows nothing of what it stands for.
        hidden = [one for one in gc.get_referents(awaitable) if isinstance(one, _HIDDEN)]
        if not hidden:
            yield repr(awaitable)[:200]
        awaitable = hidden[0] if hidden else None
