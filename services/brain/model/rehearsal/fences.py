"""Fenced blocks of a message, found in one pass however the message is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARK = "```"


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: where it starts and ends in the text, its label, and what it holds."""

    start: int
    end: int
    label: str
    body: str


def find_fences(text: str) -> list[Fence]:
    """The closed blocks of `text`, in order."""
    found: list[Fence] = []
    opened: tuple[int, int, str] | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        if line.startswith(_MARK):
            words = line.strip().strip("`").split()
            if opened is None:
                opened = (at, at + len(line), words[0].lower() if words else "")
            elif not words:
                start, body, label = opened
                found.append(Fence(start, at + len(line), label, text[body:at]))
                opened = None
        at += len(line)
    return found


def without_fences(text: str, fences: Sequence[Fence]) -> str:
    """`text` with the blocks blanked out, every other character where it was."""
    parts: list[str] = []
    at = 0
    for fence in fences:
        parts += [text[at : fence.start], " " * (fence.end - fence.start - 1), "\n"]
        at = fence.end
    return "".join([*parts, text[at:]])
