"""Workspaces: what of a sandbox outlives it.

DIR/hands/workspaces/<session>/{workspace,outputs,home,tool_outputs}, beside them what is brought
into it, {uploads,skills,memory}, and the same below <session>@<name> for a hand that has a name:
each is found by its hand's address.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from services.hands.archive.bounds import BROUGHT, PARTS
from services.hands.backends.port import Volume

if TYPE_CHECKING:
    from collections.abc import Collection

FIRST_OWNER: Final = 200_000
"""As root, volumes belong to users from this number on, which no person has."""
LAST_OWNER: Final = 1_200_000


class Workspaces:
    """The volumes below `directory`: the sessions' own, and spare ones that no session has yet.

    Of the one that has them, `directory` has the sessions' own.
    """

    def __init__(self, directory: Path, *, privileged: bool) -> None:
        self._sessions = self.directory = directory / "workspaces"
        self._spares = directory / "spares"
        self._privileged = privileged
        self._owners: set[int] = set()
        self._candidates = itertools.cycle(range(FIRST_OWNER, LAST_OWNER))

    async def start(self) -> None:
        """Makes the directories, learns which users are taken, and drops spares of old."""
        await asyncio.to_thread(self._start)

    def find(self, session_id: str) -> Volume | None:
        """A session's volume, if it has one."""
        root = self._sessions / session_id
        try:
            owner = root.stat().st_uid
        except FileNotFoundError:
            return None
        return Volume(root, owner if self._privileged else None)

    def place_of(self, where: str) -> Path:
        """Where a hand's volume is, if it has one."""
        return self._sessions / where

    async def make(self, session_id: str, stores: Collection[str] = ()) -> Volume:
        """A session's volume, made if it has none, with what `complete` adds. Raises `OSError`."""
        if (volume := self.find(session_id)) is not None:
            return volume
        volume = await asyncio.to_thread(self._make, self._sessions, session_id)
        if stores:
            await self.complete(volume, stores)
        return volume

    async def complete(self, volume: Volume, stores: Collection[str] = ()) -> None:
        """Makes the directories that a volume of an earlier release lacks, and those of memory
        stores. Raises `OSError`.
        """
        await asyncio.to_thread(_complete, volume, stores)

    def has_memory(self, where: str) -> bool:
        """Whether a volume has the directory of any memory store. Blocking, and brief."""
        with suppress(FileNotFoundError), os.scandir(self._sessions / where / "memory") as found:
            return next(found, None) is not None
        return False

    async def make_spare(self, name: str) -> Volume:
        """A volume for a session that is not known yet. Raises `OSError`."""
        return await asyncio.to_thread(self._make, self._spares, name)

    def adopt(self, session_id: str, spare: Volume) -> Volume:
        """Makes a spare volume a session's, who must have none. Raises `OSError`.

        A sandbox that has it mounted keeps it: a mount follows the directory, not its name.
        """
        root = self._sessions / session_id
        spare.root.rename(root)
        return Volume(root, spare.owner)

    async def addresses(self, session_id: str) -> list[str]:
        """Where a session has volumes: those of its hands, named or not."""
        return await asyncio.to_thread(self._addresses, session_id)

    async def move(self, where: str, to: str) -> None:
        """Gives a volume another address, durably, if it is not there yet. Raises `OSError`.

        A sandbox that has it mounted keeps it.
        """
        await asyncio.to_thread(self._move, self._sessions / where, self._sessions / to)

    def everywhere(self) -> list[str]:
        """The addresses of all volumes that are on this machine."""
        return [path.name for path in self._sessions.iterdir()]

    async def prepare(self, where: str) -> Volume:
        """An empty volume, without its directories, to be filled for a hand. Raises `OSError`.

        It is nobody's before `place`; `remove` takes it away again.
        """
        return await asyncio.to_thread(self._prepare, where)

    async def place(self, where: str, filled: Volume) -> Volume:
        """Makes a prepared volume a hand's, who must have none. Raises `OSError`."""
        await asyncio.to_thread(self._move, filled.root, self._sessions / where)
        return Volume(self._sessions / where, filled.owner)

    async def purge(self, session_id: str) -> None:
        """Deletes a session's volume, if it has one. Raises as `remove`."""
        volume = self.find(session_id) or Volume(self._sessions / session_id, None)
        await self.remove(volume)

    async def remove(self, volume: Volume) -> None:
        """Deletes a volume and all that is in it; nothing may run in it any more.

        It is the session's no longer at once; a process that dies before the last of it is deleted
        leaves the rest to the next one's start. Raises `OSError` when something of it stays.
        """
        gone = self._spares / f"{volume.root.name}.gone"
        if gone.exists():  # what an earlier attempt has left
            await asyncio.to_thread(_delete, gone)
        with suppress(FileNotFoundError):
            volume.root.rename(gone)
        await asyncio.to_thread(_delete, gone)
        if gone.exists():
            msg = f"{gone} cannot be deleted"
            raise OSError(msg)
        if volume.owner is not None:
            self._owners.discard(volume.owner)

    def _addresses(self, session_id: str) -> list[str]:
        names = [path.name for path in self._sessions.glob(f"{session_id}@*")]
        return [session_id, *names] if self.find(session_id) is not None else names

    def _start(self) -> None:
        _delete(self._spares)
        for directory in (self._sessions, self._spares):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o711)  # to pass through, not to look into
        self._owners.update(entry.stat().st_uid for entry in self._sessions.iterdir())

    def _move(self, root: Path, target: Path) -> None:
        if root.exists():
            if target.exists():
                msg = f"{root.name} cannot become {target.name}, which is there already"
                raise OSError(msg)
            root.rename(target)
        # Also where an earlier attempt has renamed it: it may not have come this far.
        directory = os.open(self._sessions, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _prepare(self, where: str) -> Volume:
        root = self._spares / f"{where}.restored"
        _delete(root)  # what an earlier attempt has left
        owner = self._take_owner() if self._privileged else None
        root.mkdir(mode=0o700)
        if owner is not None:
            os.chown(root, owner, owner)
        return Volume(root, owner)

    def _make(self, parent: Path, name: str) -> Volume:
        unfinished = self._spares / f"{name}.new"
        # What an earlier attempt has left, on a full disk perhaps, is a part of the same. (It could
        # not be deleted where there are no descriptors.)
        unfinished.mkdir(mode=0o700, exist_ok=True)
        volume = Volume(unfinished, self._take_owner() if self._privileged else None)
        _complete(volume, ())
        if volume.owner is not None:
            os.chown(unfinished, volume.owner, volume.owner)
        return Volume(unfinished.rename(parent / name), volume.owner)

    def _take_owner(self) -> int:
        for _ in range(FIRST_OWNER, LAST_OWNER):
            owner = next(self._candidates)
            if owner not in self._owners:
                self._owners.add(owner)
                return owner
        msg = "every user id for workspaces is taken"
        raise OSError(msg)


def _complete(volume: Volume, stores: Collection[str]) -> None:
    root = os.open(volume.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in (*PARTS, *BROUGHT, *(f"memory/{name}" for name in stores)):
            # Nothing in a sandbox can write beside them: no link is in their way.
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=root)
            if volume.owner is not None:  # also where a process has died before it came to this
                os.chown(part, volume.owner, volume.owner, dir_fd=root, follow_symlinks=False)
    finally:
        os.close(root)


def _delete(root: Path) -> None:
    """Deletes a tree, directories included that their owner may not enter."""
    shutil.rmtree(root, ignore_errors=True)
    for directory, below, _ in os.walk(root):
        for path in (Path(directory, name) for name in below):
            if not path.is_symlink():
                path.chmod(stat.S_IRWXU)  # before the walk enters it
    shutil.rmtree(root, ignore_errors=True)
