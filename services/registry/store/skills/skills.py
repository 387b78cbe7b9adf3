"""Implements the port of skills over the registry's database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, or_, select, tuple_, update

from catalogue.resources.stamps import micros
from drover.skill.v1.skill_pb2 import Skill, SkillVersion
from services.registry.domain.skills.ports import Archive, Pin
from services.registry.domain.skills.skill import (
    LATEST,
    check_same_name,
    last_version,
    no_skill,
    no_version,
)
from services.registry.store.newest import newest
from services.registry.store.objects.uses import hold, let_go
from services.registry.store.skills.tables import SKILL_VERSIONS, SKILLS
from storage.answers import withdraw
from storage.once import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection, Row

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing
    from storage import Database

_S, _V = SKILLS.c, SKILL_VERSIONS.c
_SKILL = select(SKILLS)


class SqlSkillStore:
    """Implements `SkillStore`. A skill's row is the fence for its versions.

    `wake` is called when objects may have been let go of.
    """

    def __init__(self, database: Database, clock: Clock, wake: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._wake = wake
        self._answers = Answers(database, clock)

    async def add(
        self,
        workspace_id: str,
        skill: Skill,
        version: SkillVersion,
        archive: Archive,
        once: Once[Skill] | None = None,
    ) -> Skill:
        """Keeps a new skill with its first version."""

        def write(connection: Connection) -> Skill:
            connection.execute(
                insert(SKILLS).values(
                    id=skill.id,
                    workspace_id=workspace_id,
                    name=version.name,
                    created_at=micros(skill.created_at),
                    updated_at=micros(skill.updated_at),
                    latest=version.id,
                    definition=skill.SerializeToString(),
                )
            )
            _insert(connection, version, archive)
            return skill

        return await self._answers.write(write, once, skill.id)

    async def add_version(
        self,
        workspace_id: str,
        version: SkillVersion,
        archive: Archive,
        once: Once[SkillVersion] | None = None,
    ) -> SkillVersion:
        """Keeps another version. Raises NOT_FOUND, and as `check_same_name`."""

        def write(connection: Connection) -> SkillVersion:
            skill = _load(connection, workspace_id, version.skill_id, lock=True)
            check_same_name(skill.name, version)
            added = SkillVersion()
            added.CopyFrom(version)
            # Behind the newest, also where that came from a process whose clock is ahead.
            before = select(func.max(_V.created_at)).where(_V.skill_id == skill.id)
            newest = connection.execute(before).scalar_one()
            created_at = max(micros(version.created_at), (newest or 0) + 1)
            added.created_at.FromMicroseconds(created_at)
            _insert(connection, added, archive)
            _move(connection, skill.id, created_at)
            return added

        return await self._answers.write(write, once, version.id)

    async def get(self, workspace_id: str, skill_id: str) -> Skill:
        """A skill. Raises NOT_FOUND."""

        def read(connection: Connection) -> Skill:
            return _skill(_load(connection, workspace_id, skill_id))

        return await self._database.read(read)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Skill]:
        """Skills, newest first."""
        query = newest(_SKILL, SKILLS, workspace_id, replace(listing, include_archived=True))

        def read(connection: Connection) -> Sequence[Skill]:
            return [_skill(found) for found in connection.execute(query)]

        return await self._database.read(read)

    async def version(
        self, workspace_id: str, skill_id: str, version: str
    ) -> tuple[SkillVersion, Archive]:
        """A version. Raises NOT_FOUND."""

        def read(connection: Connection) -> tuple[SkillVersion, Archive]:
            skill = _load(connection, workspace_id, skill_id)
            found = _version(connection, skill, version)
            told = SkillVersion.FromString(found.definition)
            return told, Archive(found.object, found.size)

        return await self._database.read(read)

    async def versions(
        self, workspace_id: str, skill_id: str, listing: Listing
    ) -> Sequence[SkillVersion]:
        """A skill's versions, newest first. Raises NOT_FOUND."""
        query = select(_V.definition).where(_V.skill_id == skill_id)
        if listing.after is not None:
            after = tuple_(listing.after.order, listing.after.item_id)
            query = query.where(tuple_(_V.created_at, _V.id) < after)
        query = query.order_by(_V.created_at.desc(), _V.id.desc()).limit(listing.limit)

        def read(connection: Connection) -> Sequence[SkillVersion]:
            _load(connection, workspace_id, skill_id)
            return [SkillVersion.FromString(one) for one in connection.execute(query).scalars()]

        return await self._database.read(read)

    async def find(self, workspace_id: str, pins: Collection[Pin]) -> Mapping[Pin, SkillVersion]:
        """The versions that there are, of those named."""
        query = (
            select(_V.definition, _S.latest)
            .join_from(SKILL_VERSIONS, SKILLS, _V.skill_id == _S.id)
            .where(
                _S.workspace_id == workspace_id,
                _S.id.in_({pin.skill_id for pin in pins}),
                or_(_V.id == _S.latest, _V.id.in_({pin.version for pin in pins})),
            )
        )

        def read(connection: Connection) -> Mapping[Pin, SkillVersion]:
            found: dict[Pin, SkillVersion] = {}
            for definition, latest in connection.execute(query):
                version = SkillVersion.FromString(definition)
                found[Pin(version.skill_id, version.id)] = version
                if version.id == latest:
                    found[Pin(version.skill_id, LATEST)] = version
            return {pin: found[pin] for pin in pins if pin in found}

        return await self._database.read(read)

    async def delete(self, workspace_id: str, skill_id: str, once: Once[str] | None = None) -> None:
        """Deletes a skill with its versions. Raises NOT_FOUND."""

        def write(connection: Connection) -> str:
            _load(connection, workspace_id, skill_id, lock=True)
            of_it = _V.skill_id == skill_id
            rows = connection.execute(select(_V.id, _V.object).where(of_it)).all()
            connection.execute(delete(SKILL_VERSIONS).where(of_it))
            connection.execute(delete(SKILLS).where(_S.id == skill_id))
            withdraw(connection, skill_id)
            self._let_go(connection, {row.id: row.object for row in rows})
            return skill_id

        await self._answers.write(write, once)
        self._wake()

    async def delete_version(
        self,
        workspace_id: str,
        skill_id: str,
        version: str,
        at: datetime,
        once: Once[str] | None = None,
    ) -> str:
        """Deletes a version, and answers its id. Raises NOT_FOUND, and `last_version`."""

        def write(connection: Connection) -> str:
            skill = _load(connection, workspace_id, skill_id, lock=True)
            doomed = _version(connection, skill, version)
            connection.execute(delete(SKILL_VERSIONS).where(_V.id == doomed.id))
            _move(connection, skill_id, micros(at))
            self._let_go(connection, {doomed.id: doomed.object})
            return str(doomed.id)

        deleted = await self._answers.write(write, once)
        self._wake()
        return deleted

    def _let_go(self, connection: Connection, objects: Mapping[str, str]) -> None:
        """Lets go of the objects of versions that were deleted, by the versions' ids."""
        for version_id in objects:
            withdraw(connection, version_id)
        let_go(connection, objects.values(), micros(self._clock.now()))


def _load(
    connection: Connection, workspace_id: str, skill_id: str, *, lock: bool = False
) -> Row[Any]:
    query = _SKILL.where(_S.id == skill_id, _S.workspace_id == workspace_id)
    found = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if found is None:
        raise no_skill(skill_id)
    return found


def _version(connection: Connection, skill: Row[Any], version: str) -> Row[Any]:
    wanted = skill.latest if version == LATEST else version
    query = select(SKILL_VERSIONS).where(_V.id == wanted, _V.skill_id == skill.id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_version(skill.id, version)
    return found


def _insert(connection: Connection, version: SkillVersion, archive: Archive) -> None:
    hold(connection, archive.name)
    connection.execute(
        insert(SKILL_VERSIONS).values(
            id=version.id,
            skill_id=version.skill_id,
            created_at=micros(version.created_at),
            object=archive.name,
            size=archive.size,
            definition=version.SerializeToString(),
        )
    )


def _move(connection: Connection, skill_id: str, now: int) -> None:
    """Has `latest` name the newest version. Raises `last_version` where there is none."""
    query = select(_V.id).where(_V.skill_id == skill_id)
    query = query.order_by(_V.created_at.desc(), _V.id.desc()).limit(1)
    latest = connection.execute(query).scalar_one_or_none()
    if latest is None:
        raise last_version()
    # Fence: the skill's row is locked.
    connection.execute(
        update(SKILLS).where(_S.id == skill_id).values(latest=latest, updated_at=now)
    )


def _skill(found: Row[Any]) -> Skill:
    skill = Skill.FromString(found.definition)
    skill.latest_version_id = found.latest
    skill.updated_at.FromMicroseconds(found.updated_at)
    return skill
