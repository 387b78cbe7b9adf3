"""Skills that lie in a workspace: found once, when it has been made ready, and told once.

The workspace is its sandbox's: whatever is in it is opened by name, from directory to directory,
and no link is followed (CASES S2).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import structlog

from catalogue.skill_text import FILE, MAX_BYTES, BadSkillText, read_skill_text
from drover.hands.v1.mounts_pb2 import FoundSkill
from services.hands.bringing import beneath
from services.hands.bringing.port import Told
from services.hands.domain.address import session_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from services.hands.domain.mounts import Mounts
    from services.hands.hand import Hand
    from services.hands.pool import Pool
    from services.hands.workspace import Workspaces

WORKSPACE: Final = "/workspace"
MOST: Final = 50
"""Skills that are told."""
_PLACE: Final = (".claude", "skills")
_MOST_FOLDERS: Final = 200
"""Of a workspace, and of skills in one of them, that are looked into."""
_MOST_READ: Final = 400
_SECONDS: Final = 2.0
_MARK: Final = ".found.json"

_log = structlog.get_logger("hands.skills")


class FoundSkills:
    """An `Attendant` of the first call in a hand over a workspace that may have skills in it."""

    def __init__(self, pool: Pool, workspaces: Workspaces) -> None:
        self._pool = pool
        self._workspaces = workspaces
        self._looked: WeakKeyDictionary[Hand, str] = WeakKeyDictionary()

    def wanted(self, where: str, hand: Hand, mounts: Mounts) -> bool:  # noqa: ARG002  # any
        """Whether nobody has looked yet, and there may be any."""
        if hand.is_fresh and not _repositories(hand):
            return False  # nobody has put anything there
        looked = self._looked.get(hand) == session_of(where)
        return not looked and not self._pool.mounts.busy(where)

    def attend(
        self,
        where: str,
        hand: Hand,
        mounts: Mounts,  # noqa: ARG002  # whatever they are
        call_id: str,  # noqa: ARG002  # the first is as good as any
    ) -> AbstractAsyncContextManager[Told]:
        """Tells what is there, unless it was told before."""
        return self._attend(where, hand)

    @asynccontextmanager
    async def _attend(self, where: str, hand: Hand) -> AsyncIterator[Told]:
        session_id = session_of(where)
        self._looked[hand] = session_id  # now: others may come at once
        root = self._workspaces.place_of(where)
        found: Sequence[FoundSkill] = ()
        try:
            try:
                found = await asyncio.to_thread(_untold, root, session_id, _repositories(hand))
            except Exception as error:  # noqa: BLE001  # no call fails of what lies there
                _failed("skills_not_looked_for", session_id, error)
            told = Told(found=[*found])
            if found:
                told.after.append(partial(asyncio.to_thread, _mark, root, session_id))
            yield told
        except BaseException:  # it is told with another call
            self._looked.pop(hand, None)
            raise
        if found:
            _log.info("skills_found", session_id=session_id, count=len(found))


def scan(workspace: int, repositories: Iterable[str] = ()) -> Iterator[FoundSkill]:
    """The skills in the directory that is open, in those in it and in `repositories` below it.

    As many of the texts are read as there is time for, for they may be slow to read.
    """
    until = time.monotonic() + _SECONDS
    for path, name, head in islice(_heads(workspace, repositories), _MOST_READ):
        with suppress(BadSkillText):
            text = read_skill_text(head, name)
            yield FoundSkill(name=text.name, description=text.description, path=path)
        if time.monotonic() > until:
            return


def _heads(workspace: int, repositories: Iterable[str]) -> Iterator[tuple[str, str, bytes]]:
    """The beginnings of texts: each with its path, and its folder's name."""
    with os.scandir(workspace) as entries:
        names = [entry.name for entry in islice(entries, _MOST_FOLDERS)]
    for place in ("", *sorted({*names, *repositories})):
        parts = place.split("/") if place else []
        if not all(part.isprintable() for part in parts):
            continue
        with suppress(OSError), beneath.opened(".", *parts, *_PLACE, at=workspace) as folder:
            with os.scandir(folder) as entries:
                within = sorted(entry.name for entry in islice(entries, _MOST_FOLDERS))
            for name in within:
                if (head := _head(folder, name)) is None or not name.isprintable():
                    continue
                path = "/".join((WORKSPACE, *parts, *_PLACE, name, FILE))
                yield path, name, head


def _untold(root: Path, session_id: str, repositories: Iterable[str]) -> list[FoundSkill]:
    """What is there, where it was not told yet. Raises `OSError`."""
    with beneath.opened(root) as volume:
        with suppress(FileNotFoundError, ValueError, AttributeError):
            told = json.loads(beneath.beginning(volume, _MARK, MAX_BYTES))
            if told.get("session_id") == session_id:
                return []
        with beneath.opened("workspace", at=volume) as workspace:
            return [*islice(scan(workspace, repositories), MOST)]


def _mark(root: Path, session_id: str) -> None:
    """Notes that it was told: out of the sandbox's reach, and for that session alone."""
    data = json.dumps({"session_id": session_id}).encode()
    try:
        with beneath.opened(root) as volume:
            beneath.replace(volume, _MARK, "found", data)
    except Exception as error:  # noqa: BLE001  # it is told once more
        _failed("told_skills_not_noted", session_id, error)


def _failed(event: str, session_id: str, error: Exception) -> None:
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    _log.warning(event, session_id=session_id, reason=reason)


def _head(folder: int, name: str) -> bytes | None:
    """The beginning of a skill's text; nothing where there is none that may be read."""
    with suppress(OSError), beneath.opened(".", name, at=folder) as skill:
        return beneath.beginning(skill, FILE, MAX_BYTES)
    return None


def _repositories(hand: Hand) -> tuple[str, ...]:
    """Where the session's repositories are, below its workspace."""
    known = hand.access.repositories if hand.access is not None else None
    prefix = f"{WORKSPACE}/"
    return tuple(
        one.mount_path.removeprefix(prefix)
        for one in known or ()
        if one.mount_path.startswith(prefix)
    )
