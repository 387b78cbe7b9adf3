"""How an upload that is no skill is refused: with the entry that it fails by, and why."""

from __future__ import annotations

from typing import Final, NoReturn

from chassis.errors import DroverError, Reason

_SHOWN: Final = 120


def refuse(text: str, entry: str | None = None) -> NoReturn:
    """Raises INVALID_ARGUMENT, naming `entry` of the upload."""
    where = "files" if entry is None else f"files: {shown(entry)}"
    raise DroverError(Reason.INVALID_ARGUMENT, f"{where}: {text}")


def too_large(most: int, entry: str) -> NoReturn:
    """Raises REQUEST_TOO_LARGE: with `entry`, it is more than `most` bytes."""
    raise DroverError(
        Reason.REQUEST_TOO_LARGE,
        f"files: {shown(entry)}: with it the skill has more than {most} bytes unpacked",
    )


def shown(entry: str) -> str:
    """An entry's name as messages quote it: printable, and not without end."""
    return ascii(entry if len(entry) <= _SHOWN else f"{entry[:_SHOWN]}...")
