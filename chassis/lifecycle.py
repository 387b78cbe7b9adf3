"""How a process lives: starts on uvloop, stops on a signal, within a deadline."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog
import uvloop

from chassis.telemetry import logs, tracing

Main = Callable[[AsyncExitStack, asyncio.Event], Awaitable[None]]

_log = structlog.get_logger("chassis.lifecycle")


def run(main: Main, *, service: str, log_level: str = "info", stop_seconds: float = 10.0) -> None:
    """Runs a process until `main` returns; logs and tracing are set up around it.

    `main(stack, stop)` builds the process, entering what must be closed into `stack`, and waits for
    `stop`, which SIGTERM and SIGINT set. After that, `main` and the closing of the stack together
    have `stop_seconds`; then, or at a second signal, they are cancelled and the process exits with
    status 1.
    """
    logs.setup(service, log_level)
    tracing.setup(service)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not write secrets to disk
    try:
        in_time = uvloop.run(_supervise(main, stop_seconds))
    finally:
        tracing.shutdown()
    if not in_time:
        raise SystemExit(1)


async def _supervise(main: Main, stop_seconds: float) -> bool:
    """Runs `main` to its end; false when it had to be cancelled."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    async def live() -> None:
        async with AsyncExitStack() as stack:
            await main(stack, stop)

    def on_signal(number: signal.Signals) -> None:
        _log.info("stopping", signal=number.name)
        if stop.is_set():
            task.cancel()
        stop.set()

    task = loop.create_task(live())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.wait({task}, timeout=stop_seconds)
    if not task.done():
        _log.error("stop_deadline_passed", seconds=stop_seconds)
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    _log.info("stopped")
    return True
