"""What is known of a memory store's directory: what the store has, and what the files were like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_BYTES: Final = 102_400
"""Of a memory's content (SEMANTICS §13)."""
MAX_FILES: Final = 2_000
"""Memories of a store, and so files of its directory that are looked at (SEMANTICS §13)."""
MAX_SEGMENTS: Final = 20
MAX_PATH_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a file is when nobody has changed it: its size, its times in nanoseconds, its inode."""

    size: int
    modified: int
    changed: int
    inode: int


@dataclass(frozen=True, slots=True)
class Known:
    """A memory that the store has, by all that is known.

    `here`: it is, or was, a file of the directory, so that its absence is a deletion. `seen` is the
    file with just that content; without one its content must be read.
    """

    memory_id: str
    sha256: str
    here: bool = True
    seen: Fingerprint | None = None


@dataclass(frozen=True, slots=True)
class Odd:
    """Something in a directory that is no memory; `kind` says what."""

    kind: str
    inode: int


@dataclass(slots=True)
class Scan:
    """What is in a directory, by the memory's path. `unseen` are directories that could not be
    looked into; `whole` is whether there was not too much of it.
    """

    files: dict[str, Fingerprint] = field(default_factory=dict)
    odd: dict[str, Odd] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    whole: bool = True

    def misses(self, path: str) -> bool:
        """Whether nothing can be said of a path that is not among the files."""
        if not self.whole or path in self.odd:
            return True
        above = path
        while above:
            above = above.rpartition("/")[0]
            if above in self.unseen or above in self.odd:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Content:
    """A file's digest, and what it was like; without `seen` it must be read again to be known."""

    sha256: str
    seen: Fingerprint | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file that is not stored as it is. `lasting`: whatever becomes of the store."""

    seen: Fingerprint | None
    lasting: bool


@dataclass(slots=True)
class StoreState:
    """One store's directory. `revision` is how far the store is known, `sent` the digests of what
    was sent and of which no answer has come: the store may have it.

    What is below those is forgotten with the process: `unlisted` are ids of memories that are known
    here and have not come yet in the list of all that the store has.
    """

    store_id: str
    revision: int = 0
    memories: dict[str, Known] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    archived: bool = False
    gone: bool = False
    refused: dict[str, Refusal] = field(default_factory=dict)
    told: dict[str, tuple[str, object]] = field(default_factory=dict)
    unsettled: dict[str, tuple[Fingerprint | None, int]] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)

    def begin_anew(self, *, forgets: bool) -> None:
        """The store has less than is known of it, and says all that it has. `forgets`: a file of
        which it says nothing may be the last copy, and goes on as a new memory.
        """
        self.revision = 0
        if forgets:
            self.memories.clear()
            self.sent.clear()

    def tell_once(self, path: str, what: str, about: object) -> bool:
        """Whether `what` has not been told yet of a path as it is."""
        if self.told.get(path) == (what, about):
            return False
        self.told[path] = (what, about)
        return True
