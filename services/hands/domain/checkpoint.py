"""What is known of a workspace's checkpoints, and which copy of a workspace is the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Origin:
    """What a volume on this machine is: which one, and which checkpoint it was made from.

    `fingerprint` is what it looked like when that checkpoint, or the last one of it, was taken.
    """

    volume: str = ""
    checkpoint: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A copy of the volume `volume` in the store, of `size` bytes with that SHA-256."""

    id: str
    name: str
    volume: str
    size: int
    digest: bytes


class Dropped(NamedTuple):
    """An object that is to be deleted. Without `stored` nobody knows whether its upload came to an
    end: a store may go on with it, though whoever asked for it is gone.
    """

    id: str
    name: str
    stored: bool


def is_behind(origin: Origin, newest: Checkpoint) -> bool:
    """Whether a volume is older than a checkpoint: neither its source, nor made from it."""
    return newest.volume != origin.volume and newest.id != origin.checkpoint


class Checkpoints(Protocol):
    """Which checkpoints there are of the workspaces, each named by its hand's address.

    There is one that counts of each workspace. A store's object is always named by a row: one that
    is being uploaded, one that counts, or one that is to be deleted. All methods are durable, and
    raise `DroverError` while the database is away.
    """

    async def newest(self, where: str) -> Checkpoint | None:
        """The checkpoint that counts."""
        ...

    async def any(self) -> bool:
        """Whether there is a checkpoint of any workspace."""
        ...

    async def begin(self, where: str, checkpoint_id: str, name: str, origin: Origin) -> str | None:
        """Notes that `name` is about to be uploaded; answers the checkpoint that counts, or "".

        None, and nothing noted, if the volume of that origin is behind it.
        """
        ...

    async def commit(self, checkpoint: Checkpoint, before: str) -> bool:
        """Has an uploaded one count, and the one before it deleted, all at once.

        False if it is not to count any more: purged, or another one came before it. Then it is to
        be deleted.
        """
        ...

    async def drop(self, checkpoint_id: str) -> None:
        """Notes that one is to be deleted, whose upload failed or was cut off.

        Nothing happens to one that counts: its commit came about, though nobody was told so.
        """
        ...

    async def drop_unfinished(self) -> None:
        """Notes that what dead processes were uploading is to be deleted."""
        ...

    async def move(self, where: str, to: str) -> None:
        """Has the checkpoints of one workspace be another's, if there are any."""
        ...

    async def purge(self, session_id: str, hand: str | None) -> None:
        """Notes that all of a session's workspace are to be deleted, or of all that it has."""
        ...

    async def to_delete(self, limit: int) -> Sequence[Dropped]:
        """Those that are to be deleted, the oldest first."""
        ...

    async def forget(self, checkpoint_id: str) -> None:
        """Notes that one is deleted."""
        ...
