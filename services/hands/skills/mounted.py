"""Brings the skills of a session's agent to where its sandboxes may read them."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

import structlog

from chassis.errors import DroverError
from services.hands.bringing import beneath
from services.hands.bringing.bringer import NotBrought
from services.hands.domain.mounts import SKILLS
from services.hands.files.source import not_had
from services.hands.skills.archive import Bounds, SkillRefused, unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from drover.skill.v1.skill_pb2 import SkillVersion
    from services.hands.bringing.bringer import Errand
    from services.hands.domain.mounts import MountedSkill, Mounts
    from services.hands.files.source import Source

MAX_ARCHIVE: Final = 68 << 20
"""Bytes: of the largest skill that may be unpacked, with the names of as many files as it has."""
MAX_KEPT: Final = 512 << 20
"""Bytes of archives that are kept for other sessions of their workspaces."""
_DIRECTORY: Final = 0o755

_log = structlog.get_logger("hands.skills")


class Skills(Protocol):
    """Where skills come from."""

    def skill(
        self, workspace_id: str, skill_id: str, version: str
    ) -> AbstractAsyncContextManager[tuple[SkillVersion, AsyncIterator[bytes]]]:
        """What is known of a skill's version, and its archive. Raises `DroverError`."""
        ...


class AgentSkills:
    """The `Kind` of skills. Archives are kept below `directory`, for versions never change."""

    part = "skills"

    def __init__(
        self, skills: Skills, source: Source, directory: Path, bounds: Bounds | None = None
    ) -> None:
        self._skills = skills
        self._source = source
        self._directory = directory / "skills"
        self._bounds = bounds or Bounds()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def items(self, mounts: Mounts) -> tuple[MountedSkill, ...]:
        """The agent's skills."""
        return mounts.skills

    def path(self, item: MountedSkill) -> str:
        """Its directory below the skills."""
        return item.directory

    def key(self, item: MountedSkill) -> str:
        """Its version."""
        return f"{item.skill_id}/{item.version}"

    def about(self, item: MountedSkill) -> str:
        """Its version, and where it is to be."""
        return f"version {item.version} of skill {item.skill_id} at {SKILLS}/{item.directory}"

    async def bring(self, item: MountedSkill, errand: Errand) -> None:
        """Unpacks its archive. Raises `NotBrought` and `OSError`."""
        words = (errand.workspace_id, item.skill_id, item.version)
        name = hashlib.sha256("\n".join(words).encode()).hexdigest()
        try:
            if await self._unpacked(item, errand, name, fetches=False):
                return
        except SkillRefused as refusal:
            # A crash of the machine may have left less of it than was written.
            _log.info("kept_skill_is_broken", skill_id=item.skill_id, reason=str(refusal))
        try:
            await self._unpacked(item, errand, name, fetches=True)
        except SkillRefused as refusal:
            raise NotBrought(str(refusal), away=False) from refusal

    async def _unpacked(
        self, item: MountedSkill, errand: Errand, name: str, *, fetches: bool
    ) -> bool:
        """Unpacks what is kept, or can be fetched; whether there was anything."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            archive = await asyncio.to_thread(self._kept, name)
            if archive is None:
                if not fetches:
                    return False
                archive = await self._fetched(item, errand, name)
        with archive:
            try:
                await asyncio.to_thread(_unpack, archive, errand, self._bounds)
            except SkillRefused:
                await asyncio.to_thread((self._directory / name).unlink, missing_ok=True)
                raise
        return True

    async def _fetched(self, item: MountedSkill, errand: Errand, name: str) -> IO[bytes]:
        """Its archive from the registry, kept for the next. Raises `NotBrought` and `OSError`."""
        unfinished = f"{name}.new"
        await asyncio.to_thread(self._make_room, unfinished)
        place = self._directory, unfinished
        try:
            async with self._skills.skill(errand.workspace_id, item.skill_id, item.version) as had:
                about, pieces = had
                await self._source.save(pieces, MAX_ARCHIVE, about.sha256, place)
            await asyncio.to_thread((self._directory / unfinished).rename, self._directory / name)
        except DroverError as error:
            raise not_had(error) from error
        finally:
            await asyncio.to_thread((self._directory / unfinished).unlink, missing_ok=True)
        return await asyncio.to_thread((self._directory / name).open, "rb")

    def _kept(self, name: str) -> IO[bytes] | None:
        try:
            archive = (self._directory / name).open("rb")
        except FileNotFoundError:
            return None
        os.utime(archive.fileno())  # those that nobody has used for longest go first
        return archive

    def _make_room(self, unfinished: str) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        (self._directory / unfinished).unlink(missing_ok=True)
        kept = []
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # others come and go meanwhile
                status = path.stat()
                kept.append((status.st_mtime, path, status.st_size))
        left = sum(size for *_, size in kept)
        for _, path, size in sorted(kept):
            if left <= MAX_KEPT:
                break
            if not path.suffix:
                left -= size
                path.unlink(missing_ok=True)


def _unpack(archive: IO[bytes], errand: Errand, bounds: Bounds) -> None:
    with beneath.opened(errand.root) as volume:
        beneath.remove(volume, errand.unfinished)  # what was not whole
        os.mkdir(errand.unfinished, _DIRECTORY, dir_fd=volume)
        os.chmod(errand.unfinished, _DIRECTORY, dir_fd=volume)
        with beneath.opened(errand.unfinished, at=volume) as directory:
            unpack(archive, directory, bounds)
