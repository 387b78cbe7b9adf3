"""How a process lives: starts on uvloop, stops on a signal, within a deadline."""

from __future__ import annotations

import asyncio
import errno
import gc
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import structlog
import uvloop
from pydantic import ValidationError

from chassis.errors import WRONG_SETTINGS, CannotStartError
from chassis.settings import Settings
from chassis.telemetry import logs, tracing

Build = Callable[[AsyncExitStack], Awaitable[object]]

S = TypeVar("S", bound=Settings)

_FOLLOWS = "default_factory_not_called"
"""The error of a default that is made of another setting, one in error."""

_log = structlog.get_logger("chassis.lifecycle")


def configured(settings: type[S], *, service: str) -> S:
    """The settings of this process. One that cannot be used ends it, with a line that says why."""
    try:
        return settings()
    except ValidationError as error:
        logs.setup(service, "info")
        prefix = settings.model_config.get("env_prefix", "")
        reasons = [
            f"{prefix}{one['loc'][0]}".upper() + f": {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors(include_input=False, include_url=False)
            if one["type"] != _FOLLOWS
        ]
        _log.error("cannot_start", reason="; ".join(reasons))
        raise SystemExit(WRONG_SETTINGS) from None


def run(build: Build, *, service: str, log_level: str = "info", stop_seconds: float = 10.0) -> None:
    """Runs what `build` starts until SIGTERM or SIGINT; logs and tracing are set up around it.

    `build(stack)` enters what must be closed into `stack`. The closing has `stop_seconds`; then, or
    at a second signal, it is cancelled. Exits with status 1 if it had to cancel, or if something
    raised.
    """
    logs.setup(service, log_level)
    tracing.setup(service)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not write secrets to disk
    clean = False
    try:
        clean = uvloop.run(_supervise(build, stop_seconds))
    except Exception as error:  # noqa: BLE001  # logged as everything is
        cause = _alone(error)
        if isinstance(cause, OSError) and cause.errno in {errno.ENOSPC, errno.EDQUOT}:
            cause = CannotStartError(f"{cause.filename or 'a file'}: {cause.strerror}: make room")
        if isinstance(cause, CannotStartError):
            _log.error("cannot_start", reason=str(cause))  # all there is
        else:
            _log.exception("failed")
    finally:
        tracing.shutdown()
    if not clean:
        raise SystemExit(1)


def _alone(error: BaseException) -> BaseException:
    """What raised, without the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _supervise(build: Build, stop_seconds: float) -> bool:
    """Runs the process to its end; false when it had to be cancelled."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    async def live() -> None:
        async with AsyncExitStack() as stack:
            await build(stack)
            gc.freeze()  # what lives as long as the process is not searched again and again
            await stop.wait()

    def on_signal(number: signal.Signals) -> None:
        _log.info("stopping", signal=number.name)
        if stop.is_set():
            task.cancel()
        stop.set()
        loop.call_later(stop_seconds, on_deadline)

    def on_deadline() -> None:
        _log.error("stop_deadline_passed", seconds=stop_seconds)
        task.cancel()

    task = loop.create_task(live())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        return False
    _log.info("stopped")
    return True
