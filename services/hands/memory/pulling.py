"""Brings what has changed in a store into its directory. Blocking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from services.hands.domain.memory import words
from services.hands.domain.memory.known import Known
from services.hands.domain.memory.pull import Verdict, judge
from services.hands.memory import tree
from services.hands.memory.placing import TooLong, placing

if TYPE_CHECKING:
    from drover.memory.v1.memory_pb2 import Memory
    from drover.memory.v1.memory_service_pb2 import StoreChanges
    from services.hands.backends.port import Volume
    from services.hands.domain.memory.known import StoreState
    from services.hands.domain.memory.words import Notice
    from services.hands.memory.placing import Placing

_OTHER = ""
"""The digest of what has none: it is none that is known."""

_log = structlog.get_logger("hands.memory")


def is_news(state: StoreState, changes: StoreChanges) -> bool:
    """Whether there is anything in it that is not known: what was pushed comes back once."""
    if changes.deleted_ids or changes.gone or changes.archived != state.archived:
        return True
    if state.unlisted or (state.memories and not state.revision):
        return True
    return not all(_is_known(state, memory) for memory in changes.memories)


def pull(
    volume: Volume, slug: str, state: StoreState, changes: StoreChanges, *, read_only: bool = False
) -> list[Notice]:
    """Applies changes; what is to be told of it. Raises `OSError` where nothing could be."""
    with placing(volume, slug) as place:
        pulling = _Pulling(state, place, f"/mnt/memory/{slug}", read_only)
        pulling.apply(changes)
    return pulling.notices


@dataclass(slots=True)
class _Pulling:
    state: StoreState
    placing: Placing
    place: str
    read_only: bool
    notices: list[Notice] = field(default_factory=list)
    failed: bool = False

    def apply(self, changes: StoreChanges) -> None:
        state = self.state
        if changes.gone:
            self._go()
            return
        if changes.archived and not state.archived:
            self.notices.append(words.archived(self.place))
        state.archived = changes.archived
        if changes.deleted_ids:  # there is room again for what was refused
            state.refused = {path: one for path, one in state.refused.items() if one.lasting}
        restored = self._make_room(changes)
        for memory in changes.memories:
            if not _is_known(state, memory):
                self._try(memory, restored=memory.id in restored)
        if not self.failed:  # else all of it is asked for again
            state.revision = changes.revision

    def _go(self) -> None:
        """The store is gone, and with it all that it had."""
        if not self.state.gone:
            self.state.gone = True
            self.notices.append(words.gone(self.place))
        for path, known in list(self.state.memories.items()):
            self._drop(path, known)

    def _make_room(self, changes: StoreChanges) -> set[str]:
        """Takes away what is not at its path any more; ids of those that were deleted here."""
        memories = self.state.memories
        places = {known.memory_id: path for path, known in memories.items()}
        deleted = set(changes.deleted_ids)
        if not self.state.revision:  # what follows has all that there is, and not what was deleted
            self.state.unlisted = set(places)
        self.state.unlisted -= {memory.id for memory in changes.memories}
        if not changes.more:
            deleted |= self.state.unlisted
            self.state.unlisted = set()
        for memory_id in deleted:
            if memory_id in places:
                path = places.pop(memory_id)
                self._drop(path, memories[path])
        restored = set()
        for memory in changes.memories:
            before = places.get(memory.id, memory.path)
            if before != memory.path and self._leave(before, memories[before]):
                restored.add(memory.id)
        return restored

    def _drop(self, path: str, known: Known) -> None:
        """A memory that is deleted."""
        local = self._local(path) if known.here else None
        if local is None:
            del self.state.memories[path]
        elif local == known.sha256 or self.read_only:
            self._remove(path, known)
        else:
            del self.state.memories[path]
            if not self.state.gone:
                self.notices.append(words.deleted_there(self.place, path))

    def _leave(self, path: str, known: Known) -> bool:
        """A memory that has another path now; whether its file was deleted here."""
        if not known.here:
            del self.state.memories[path]
            return False
        deleted = self._local(path) is None
        self._remove(path, known)
        return deleted

    def _remove(self, path: str, known: Known) -> None:
        try:
            kept = self.placing.remove(path, frozenset({known.sha256}))
        except OSError as error:
            self._failed(path, error)
            return
        del self.state.memories[path]
        self._tell_kept(path, kept)

    def _try(self, memory: Memory, *, restored: bool) -> None:
        path = memory.path
        try:
            self._bring(memory, restored=restored)
        except TooLong:
            self.state.memories[path] = Known(memory.id, memory.content_sha256, here=False)
            if self.state.tell_once(path, "too long", memory.id):
                self.notices.append(words.unbrought(self.place, path))
        except OSError as error:
            self._failed(path, error)

    def _bring(self, memory: Memory, *, restored: bool) -> None:
        state, path, new = self.state, memory.path, memory.content_sha256
        known = state.memories.get(path)
        base = known.sha256 if known is not None and known.here else None
        verdict = judge(base=base, local=self._local(path), remote=new, sent=state.sent.get(path))
        ours = verdict is Verdict.OURS and not self.read_only
        if verdict is not Verdict.SAME and not ours:
            data = memory.content.encode()
            kept = self.placing.put(path, data, frozenset({base or _OTHER, new}))
            self._tell_kept(path, kept)
            if verdict is Verdict.RESTORE or (restored and verdict is Verdict.BRING):
                self.notices.append(words.restored(self.place, path))
        state.memories[path] = Known(memory.id, new)
        state.sent.pop(path, None)
        state.refused.pop(path, None)
        state.told.pop(path, None)

    def _local(self, path: str) -> str | None:
        """The digest of what is at a path; None where nothing is."""
        try:
            return tree.read(self.placing.root, path)[1].sha256
        except tree.NoMemory as found:
            return _OTHER if found.kind else None
        except (tree.TooLarge, OSError):
            return _OTHER

    def _failed(self, path: str, error: OSError) -> None:
        self.failed = True
        why = error.strerror or "it cannot be"
        _log.warning("memory_not_written", why=why)
        if self.state.tell_once(path, "unwritten", why):
            self.notices.append(words.unwritten(self.place, path, why))

    def _tell_kept(self, path: str, kept: dict[str, str]) -> None:
        for where, place in kept.items():
            tell = words.clash if where == path else words.displaced
            self.notices.append(tell(self.place, where, place))


def _is_known(state: StoreState, memory: Memory) -> bool:
    known = state.memories.get(memory.path)
    if known is None:
        return False
    return (known.memory_id, known.sha256) == (memory.id, memory.content_sha256)
