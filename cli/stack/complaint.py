"""Why a process ended, out of its own log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LAST: Final = 64 * 1024  # bytes of a log in which its last words are looked for


def complaint(log: Path, start: int) -> tuple[str, int]:
    """What a log says from byte `start` on that kept its process from running, and where it ends.

    That is the reason of the last line that gives one, or nothing. A log may be cut under us: then
    it is looked at as a whole.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start if start <= size else 0, size - _LAST))
            lines = file.read(_LAST).splitlines()
    except OSError:
        return "", start
    return next((why for line in reversed(lines) if (why := _why(line))), ""), size


def _why(line: bytes) -> str:
    try:
        told = json.loads(line)
    except ValueError:  # not a line of ours, or half of one
        return ""
    if not isinstance(told, dict):
        return ""
    if told.get("event") == "cannot_start":
        return str(told.get("reason", ""))
    if told.get("event") == "failed":
        return ([*str(told.get("exception", "")).splitlines()] or [""])[-1]
    return ""
