"""Looks at a store's directory for what its store has not. Blocking.

No more than one file is held in memory: a store may have 200 MB, and a sandbox change all of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from services.hands.domain.memory import push, words
from services.hands.domain.memory.known import Content, Refusal
from services.hands.domain.memory.paths import trouble
from services.hands.memory import records, tree

if TYPE_CHECKING:
    from services.hands.backends.port import Volume
    from services.hands.domain.memory.known import Scan, StoreState
    from services.hands.domain.memory.words import Notice


_MOST_NOTED: Final = 4 * tree.MAX_ENTRIES
"""Files of a store that are told apart from new ones, where there are more than are looked at."""


@dataclass(slots=True)
class Looked:
    """What was found: the steps that bring the store to where the directory is, and what is to be
    told of what no step can bring. `changed`: something is known better now.
    """

    steps: list[push.Step] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    changed: bool = False

    @property
    def sent(self) -> dict[str, str]:
        """The digests of what the steps bring, by its paths."""
        return {
            step.path: step.content.sha256
            for step in self.steps
            if not isinstance(step, push.Delete)
        }


def look(volume: Volume, slug: str, state: StoreState, *, settled: bool = False) -> Looked:
    """Looks once. `settled`: leaves out what may be in the middle of a change.

    Raises `OSError`: also for a volume that is being deleted, or was put in the place of the one
    that the state is of. Their files are missed by nobody.
    """
    with tree.opened(volume.root / "memory", slug) as root:
        found = tree.scan(root)
        # In this order: what was looked at is in its place still, which has a record.
        records.check_there(volume.root)
        tree.check_there(volume.root / "memory", slug, root)
        changed, gone = push.touched(state, found)
        if settled:
            changed, gone = push.settled(state, found, changed, gone)
        looking = _Looking(state, root, f"/mnt/memory/{slug}", found)
        contents = looking.read(changed)
        looking.tell_odd()
    looked = looking.looked
    looked.steps = push.plan(state.memories, contents, gone)
    return looked


def text_of(volume: Volume, slug: str, path: str, digest: str) -> str | None:
    """The text of a file that was looked at; None where it is another by now."""
    with suppress(OSError, tree.NoMemory, tree.TooLarge):
        with tree.opened(volume.root / "memory", slug) as root:
            data, content = tree.read(root, path)
        if content.sha256 == digest:
            return data.decode()
    return None


@dataclass(slots=True)
class _Looking:
    state: StoreState
    root: int
    place: str
    scan: Scan
    looked: Looked = field(default_factory=Looked)

    def read(self, changed: list[str]) -> dict[str, Content]:
        """The contents that the store has not."""
        contents = {}
        for path in changed:
            content = self._read(path)
            if content is None:
                continue
            known = self.state.memories.get(path)
            if known is None or known.sha256 != content.sha256:
                contents[path] = content
            elif known.seen != content.seen or not known.here:
                self.state.memories[path] = replace(known, seen=content.seen, here=True)
                self.looked.changed = True
        return contents

    def tell_odd(self) -> None:
        """Notes what is no memory, and forgets what was noted of what is gone."""
        state, scan = self.state, self.scan
        for path, odd in scan.odd.items():
            if state.tell_once(path, odd.kind, odd.inode):
                self.looked.notices.append(words.odd(self.place, path, odd.kind))
        for path in scan.unseen:
            if state.tell_once(path, "unseen", None):
                self.looked.notices.append(words.not_stored(self.place, path, words.UNREADABLE))
        if not scan.whole and state.tell_once("", "too many", None):
            self.looked.notices.append(words.not_stored(self.place, "", words.TOO_MANY))
        self._forget()

    def _forget(self) -> None:
        state, scan = self.state, self.scan
        if not scan.whole:  # what is gone cannot be known
            for noted in (state.refused, state.told):
                if len(noted) > _MOST_NOTED:
                    noted.clear()
            return
        there = scan.files.keys() | scan.odd.keys() | scan.unseen | state.memories.keys()
        for about in (state.refused, state.told):
            for path in about.keys() - there:
                del about[path]

    def _read(self, path: str) -> Content | None:
        seen = self.scan.files[path]
        if why := trouble(path):
            self._refuse(path, words.path_refused(self.place, path, why), "path")
            return None
        try:
            data, content = tree.read(self.root, path)
            data.decode()
        except tree.NoMemory:
            return None  # it has just gone: the next look says what it is
        except tree.TooLarge as found:
            notice = words.not_stored(self.place, path, words.TOO_LARGE)
            self._refuse(path, notice, found.seen)
            return None
        except UnicodeDecodeError:
            self._refuse(path, words.not_stored(self.place, path, words.NOT_TEXT), seen)
            return None
        except OSError:
            self._refuse(path, words.not_stored(self.place, path, words.UNREADABLE), seen)
            return None
        return content

    def _refuse(self, path: str, notice: Notice, about: object) -> None:
        self.state.refused[path] = Refusal(self.scan.files[path], lasting=True)
        if self.state.tell_once(path, "refused", about):
            self.looked.notices.append(notice)
