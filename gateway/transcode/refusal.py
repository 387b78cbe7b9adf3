"""How a value in a request is refused: with the path to it and what is wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 64


class Refused(Exception):  # noqa: N818  # raised and caught inside the codec only
    """A value that the contract does not allow.

    It is raised without a path; every level that it passes adds its own segment, so that reading
    a good request pays nothing for it.
    """

    def __init__(self, text: str, reason: Reason = Reason.INVALID_ARGUMENT) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self._segments: list[str] = []

    def under(self, segment: str) -> Refused:
        """Adds the segment that holds what was refused, and answers itself."""
        self._segments.append(segment if len(segment) <= _SHOWN else f"{segment[:_SHOWN]}…")
        return self

    def error(self) -> DroverError:
        """The error to answer: `events.0.content: must be an array`."""
        path = ".".join(reversed(self._segments))
        return DroverError(self.reason, f"{path}: {self.text}" if path else self.text)


def unknown_field(key: str) -> Refused:
    """A key that the contract does not name."""
    return Refused("unknown field", Reason.UNKNOWN_FIELD).under(key)


def one_of(texts: Iterable[str]) -> Refused:
    """A text that is none of `texts`."""
    return Refused(f"must be one of {', '.join(texts)}")
