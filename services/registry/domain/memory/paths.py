"""Paths of memories: which are any, and how they lie to one another.

Where paths are ordered, they are by their code points: a directory's memories then lie side by
side, whatever the language of a database.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_SEGMENTS: Final = 20
MAX_BYTES: Final = 1024

_BAD_CATEGORIES: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
_BEHIND_SLASH: Final = chr(ord("/") + 1)


class Range(NamedTuple):
    """Paths from `first` on, up to `end`, which is outside."""

    first: str
    end: str


def refuse_bad_path(path: str, field: str = "path") -> None:
    """Raises INVALID_ARGUMENT for what is no path of a memory. `field` is where it was given."""
    for problem in _problems(path):
        raise DroverError(Reason.INVALID_ARGUMENT, f"{field}: {problem}")


def refuse_bad_prefix(prefix: str) -> None:
    """Raises INVALID_ARGUMENT for what is no directory: a path and a slash, or a slash alone."""
    if not prefix.endswith("/"):
        raise DroverError(Reason.INVALID_ARGUMENT, "path_prefix: must end with a slash")
    if prefix != "/":
        refuse_bad_path(prefix[:-1], "path_prefix")


def _problems(path: str) -> Iterator[str]:
    segments = path[1:].split("/")
    if not path.startswith("/"):
        yield "must begin with a slash"
    if len(segments) > MAX_SEGMENTS:
        yield f"must have at most {MAX_SEGMENTS} segments, has {len(segments)}"
    if "" in segments:
        yield "must not have an empty segment"
    if "." in segments or ".." in segments:
        yield "must not have a segment . or .."
    for character in path:
        if unicodedata.category(character) in _BAD_CATEGORIES:
            yield f"must not hold the character U+{ord(character):04X}"
    if (length := len(path.encode())) > MAX_BYTES:
        yield f"must be at most {MAX_BYTES} bytes long, is {length}"
    if not unicodedata.is_normalized("NFC", path):
        yield "must be in Unicode Normalization Form C"


def self_and_ancestors(path: str) -> list[str]:
    """The path, and every directory that it lies in but the topmost one."""
    ends = [at for at, character in enumerate(path) if character == "/" and at]
    return [path[:end] for end in ends] + [path]


def below(directory: str) -> Range:
    """What lies below a directory, which is given with its slash."""
    return Range(directory, directory[:-1] + _BEHIND_SLASH)


def behind(item: str, within: Range) -> Range:
    """The part of a range behind an item of a list: a path, or a directory with its slash."""
    # No path is between another one and the same with U+0001 behind it: none holds that.
    first = below(item).end if item.endswith("/") else item + "\x01"
    return Range(max(first, within.first), within.end)


def children(paths: Iterable[str], directory: str, most: int) -> Sequence[str]:
    """What lies in a directory itself, so many items at most: paths, and directories in it.

    `paths` are of what is below, in order; a directory ends with its slash.
    """
    found: list[str] = []
    for path in paths:
        slash = path.find("/", len(directory))
        item = path if slash < 0 else path[: slash + 1]
        if found and found[-1] == item:
            continue
        if len(found) == most:
            break
        found.append(item)
    return found
