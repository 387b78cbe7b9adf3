"""An attempt at installing packages: what is told of it, and when the next may begin."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from services.hands.backends.port import BackendUnavailable
from services.hands.domain.packages import kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chassis.clock import Clock
    from services.hands.domain.packages import Failure, Packages

_log = structlog.get_logger("hands.packages")


@dataclass(slots=True, eq=False)
class Progress:
    """How far one list of packages is.

    `failures` are what people are told, None as long as nothing is known. `there` is what is
    missing of what sandboxes find; None where they find nothing.
    """

    failures: tuple[Failure, ...] | None = None
    there: tuple[Failure, ...] | None = None
    again_at: float = 0.0
    under_way: asyncio.Task[None] | None = None


@contextmanager
def attempt(
    progress: Progress, wanted: Packages, clock: Clock, pause: float, **about: str
) -> Iterator[None]:
    """Has an attempt end with the body, and the next begin `pause` seconds later at the earliest.

    What the body raises is told as what is missing, and goes no further: neither sessions nor other
    environments are to end with it.
    """
    began = clock.monotonic()
    try:
        yield
    except BackendUnavailable as error:
        progress.failures = kept(progress.there, wanted, str(error))
    except OSError as error:
        progress.failures = kept(progress.there, wanted, error.strerror or str(error))
    except Exception:  # noqa: BLE001  # whatever it is
        _log.exception("packages_broken", **about)
        progress.failures = kept(progress.there, wanted, "the service's log says why")
    finally:
        progress.again_at = clock.monotonic() + pause
        progress.under_way = None
        seconds = round(clock.monotonic() - began, 3)
        for one in progress.failures or ():
            what = {"manager": one.manager, "package": one.package}
            _log.warning("package_not_installed", **what, **about)
        _log.info("packages_end", seconds=seconds, **about)


async def end(attempts: Iterable[Progress]) -> None:
    """Ends those that are under way, with their sandboxes."""
    under_way = [one.under_way for one in attempts if one.under_way is not None]
    for task in under_way:
        task.cancel()
    if under_way:
        await asyncio.wait(under_way)
