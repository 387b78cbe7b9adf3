"""What a directory has that its store has not, and the order in which the store is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from services.hands.domain.memory.known import Content, Known, Scan, StoreState

_PATIENCE = 5
"""Looks after which a file is stored though each look finds it changed again."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A file is gone."""

    path: str
    known: Known


@dataclass(frozen=True, slots=True)
class Rename:
    """A file is gone, and one with just its content is new."""

    path: str
    old: str
    known: Known
    content: Content


@dataclass(frozen=True, slots=True)
class Update:
    """A file is another."""

    path: str
    known: Known
    content: Content


@dataclass(frozen=True, slots=True)
class Create:
    """A file is new."""

    path: str
    content: Content


Step = Delete | Rename | Update | Create


def touched(state: StoreState, scan: Scan) -> tuple[list[str], list[str]]:
    """The paths of files that are to be read, and of memories whose files are gone."""
    changed = []
    for path, seen in scan.files.items():
        known = state.memories.get(path)
        if known is not None and known.here and known.seen == seen:
            continue
        refused = state.refused.get(path)
        if refused is None or refused.seen != seen:
            changed.append(path)
    gone = [
        path
        for path, known in state.memories.items()
        if known.here and path not in scan.files and not scan.misses(path)
    ]
    return changed, gone


def settled(
    state: StoreState, scan: Scan, changed: Iterable[str], gone: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Those of them that were the same at the last look, or have not been for long.

    While a command runs, a file may be half written, or away for a moment.
    """
    before, state.unsettled = state.unsettled, {}
    rest: tuple[list[str], list[str]] = ([], [])
    for paths, found in zip((changed, gone), rest, strict=True):
        for path in paths:
            now = scan.files.get(path)
            last, looks = before.get(path, (None, 0))
            if looks and (last == now or looks >= _PATIENCE):
                found.append(path)
            else:
                state.unsettled[path] = (now, looks + 1)
    return rest


def plan(
    memories: Mapping[str, Known], contents: Mapping[str, Content], gone: Iterable[str]
) -> list[Step]:
    """The steps, in an order in which no path is taken while another memory is there yet."""
    left = {path: memories[path] for path in gone}
    by_content = {known.sha256: path for path, known in sorted(left.items(), reverse=True)}
    directories = {above for path in left for above in _above(path)}
    renames: list[Step] = []
    updates: list[Step] = []
    creates: list[Step] = []
    for path, content in sorted(contents.items()):
        known = memories.get(path)
        if known is not None:
            updates.append(Update(path, known, content))
            continue
        old = by_content.get(content.sha256)
        free = path not in directories and not any(above in left for above in _above(path))
        if old is not None and free:
            renames.append(Rename(path, old, memories[old], content))
            del by_content[content.sha256]
        else:
            creates.append(Create(path, content))
    moved = {step.old for step in renames if isinstance(step, Rename)}
    deletes: list[Step] = [
        Delete(path, known) for path, known in sorted(left.items()) if path not in moved
    ]
    return [*deletes, *renames, *updates, *creates]


def _above(path: str) -> list[str]:
    """The directories that a path is in."""
    found = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found
