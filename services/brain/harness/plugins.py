"""Harnesses of the operator's own, found as entry points of installed distributions."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.brain.harness.port import Harness, Setup

GROUP: Final = "drover.harnesses"
"""The group of entry points. Each is named as agents name the harness, and stands for a callable
that takes a `Setup` and gives the `Harness`: a class will do."""

_METHODS: Final = ("begin", "project", "decide", "request")


def installed(setup: Setup, taken: Iterable[str]) -> list[Harness]:
    """The harnesses that are installed beside Drover. Raises `CannotStartError`.

    `taken` are names of harnesses that nobody may replace.
    """
    return load(entry_points(group=GROUP), setup, taken)


def load(points: Iterable[EntryPoint], setup: Setup, taken: Iterable[str]) -> list[Harness]:
    """The harnesses behind `points`. Raises `CannotStartError` for the first that is none."""
    names = set(taken)
    harnesses = []
    for point in points:
        if point.name in names:
            raise CannotStartError(f"{_described(point)}: there is another harness of that name")
        names.add(point.name)
        harness = _made(point, setup)
        if harness.name != point.name:
            raise CannotStartError(f"{_described(point)} calls itself {harness.name!r}")
        harnesses.append(harness)
    return harnesses


def load_one(value: str, setup: Setup) -> Harness:
    """The harness that `value`, a `module:callable`, makes. Raises `CannotStartError`."""
    return _made(EntryPoint(value, value, GROUP), setup)


def _made(point: EntryPoint, setup: Setup) -> Harness:
    try:
        harness = point.load()(setup)
    except Exception as error:
        msg = f"{_described(point)} cannot be loaded: {type(error).__name__}: {error}"
        raise CannotStartError(msg.partition("\n")[0]) from error
    if lacking := [name for name in _METHODS if not callable(getattr(harness, name, None))]:
        raise CannotStartError(f"{_described(point)} has no {', '.join(lacking)}")
    if lacking := [name for name in ("name", "fold") if not _is_text(harness, name)]:
        raise CannotStartError(f"{_described(point)} has no text as its {', '.join(lacking)}")
    made: Harness = harness
    return made


def _is_text(harness: object, name: str) -> bool:
    value = getattr(harness, name, None)
    return isinstance(value, str) and bool(value)


def _described(point: EntryPoint) -> str:
    origin = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return f"the harness {point.name!r} ({point.value}{origin})"
