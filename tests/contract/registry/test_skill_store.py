"""What every store of skills promises."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from sqlalchemy import insert, select

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from catalogue.skill_text import SkillText
from chassis.clock import SystemClock
from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from drover.skill.v1.skill_pb2 import Skill, SkillVersion
from services.registry.domain.ports import Listing
from services.registry.domain.skills.ports import Archive, Pin
from services.registry.domain.skills.skill import new_skill
from services.registry.store.objects.tables import OBJECTS
from services.registry.store.schema import SCHEMA
from services.registry.store.skills.skills import SqlSkillStore
from tests.contract.registry.test_once import once
from tests.doubles.databases import migrated
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping

    from services.registry.domain.skills.ports import SkillStore
    from storage import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
TEXT = SkillText("sums", "Adds up.")


class Shelf:
    """The skills of one workspace, as two processes have them, and the objects beneath."""

    def __init__(self, databases: list[Database]) -> None:
        self._database = databases[0]
        self.woken = 0
        self.workspace = new_id("wrkspc")
        stores = [SqlSkillStore(one, SystemClock(), self._wake) for one in databases]
        self.skills: SkillStore = stores[0]
        self.other: SkillStore = stores[1]

    def _wake(self) -> None:
        self.woken += 1

    async def archive(self) -> Archive:
        """A stored object that no row refers to yet."""
        name = new_id("obj")
        row = {"name": name, "uses": 0, "delete_at": micros(NOON), "doomed": False}
        await self._database.write(lambda connection: connection.execute(insert(OBJECTS), row))
        return Archive(name, len(name))

    async def uses(self) -> Mapping[str, int]:
        query = select(OBJECTS.c.name, OBJECTS.c.uses)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return {row.name: row.uses for row in rows}

    async def add(self, number: int = 0, version: SkillVersion | None = None) -> Skill:
        version = version or made(number)
        archive = await self.archive()
        return await self.skills.add(self.workspace, new_skill(version, None), version, archive)

    async def add_version(self, skill: Skill, number: int, name: str = "sums") -> SkillVersion:
        version = made(number, skill.id, name)
        return await self.skills.add_version(self.workspace, version, await self.archive())

    async def versions(self, skill: Skill, listing: Listing | None = None) -> list[str]:
        listed = await self.other.versions(self.workspace, skill.id, listing or Listing(100))
        return [version.id for version in listed]


def made(number: int, skill_id: str = "", name: str = "sums") -> SkillVersion:
    version = SkillVersion(
        id=new_id("skver"),
        skill_id=skill_id or new_id("skill"),
        name=name,
        description=f"Adds up {number}.",
        sha256=hashlib.sha256(b"").hexdigest(),
    )
    version.created_at.FromDatetime(NOON + timedelta(seconds=number))
    return version


async def refused(call: Awaitable[object], reason: Reason = Reason.NOT_FOUND) -> str:
    with pytest.raises(DroverError) as error:
        await call
    assert error.value.reason is reason
    return error.value.message


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def two_databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Database]]:
    """One database as two processes have it, which has the skills of all tests."""
    url = f"sqlite:///{tmp_path_factory.mktemp('skills') / 'registry.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    async with PromptExit() as stack:
        yield [await stack.enter_async_context(migrated(url, SCHEMA)) for _ in range(2)]


@pytest.fixture
def shelf(two_databases: list[Database]) -> Shelf:
    return Shelf(two_databases)


async def test_a_skill_is_kept_with_its_first_version(shelf: Shelf) -> None:
    version = made(1)
    skill = await shelf.add(version=version)
    assert (skill.display_name, skill.latest_version_id) == ("sums", version.id)
    assert await shelf.other.get(shelf.workspace, skill.id) == skill
    for named in ("latest", version.id):
        found, archive = await shelf.other.version(shelf.workspace, skill.id, named)
        assert found == version
        assert archive.size == len(archive.name)
        assert (await shelf.uses())[archive.name] == 1


async def test_the_newest_version_is_the_latest(shelf: Shelf) -> None:
    skill = await shelf.add(1)
    second = await shelf.add_version(skill, 2)
    changed = await shelf.other.get(shelf.workspace, skill.id)
    assert changed.latest_version_id == second.id
    assert changed.created_at == skill.created_at
    assert changed.updated_at == second.created_at
    assert await shelf.versions(skill) == [second.id, skill.latest_version_id]
    doomed = shelf.skills.delete_version(shelf.workspace, skill.id, "latest", NOON)
    assert await doomed == second.id
    changed = await shelf.other.get(shelf.workspace, skill.id)
    assert changed.latest_version_id == skill.latest_version_id


async def test_every_version_has_the_skills_name(shelf: Shelf) -> None:
    skill = await shelf.add()
    told = await refused(shelf.add_version(skill, 1, "adds"), Reason.INVALID_ARGUMENT)
    assert "'adds'" in told
    assert len(await shelf.versions(skill)) == 1


async def test_a_skill_keeps_one_version_at_least(shelf: Shelf) -> None:
    skill = await shelf.add()
    for named in ("latest", skill.latest_version_id):
        call = shelf.skills.delete_version(shelf.workspace, skill.id, named, NOON)
        assert "delete the skill" in await refused(call, Reason.INVALID_ARGUMENT)
    _, archive = await shelf.other.version(shelf.workspace, skill.id, "latest")
    assert (await shelf.uses())[archive.name] == 1


async def test_of_two_that_delete_the_last_two_versions_one_is_refused(shelf: Shelf) -> None:
    skill = await shelf.add()
    second = await shelf.add_version(skill, 1)
    ended = await asyncio.gather(
        shelf.skills.delete_version(shelf.workspace, skill.id, second.id, NOON),
        shelf.other.delete_version(shelf.workspace, skill.id, skill.latest_version_id, NOON),
        return_exceptions=True,
    )
    assert sum(isinstance(one, DroverError) for one in ended) == 1
    assert len(await shelf.versions(skill)) == 1


async def test_what_is_deleted_lets_go_of_its_objects(shelf: Shelf) -> None:
    skill = await shelf.add()
    second = await shelf.add_version(skill, 1)
    _, archive = await shelf.skills.version(shelf.workspace, skill.id, second.id)
    await shelf.add_version(skill, 2)
    await shelf.skills.delete_version(shelf.workspace, skill.id, second.id, NOON)
    assert (await shelf.uses())[archive.name] == 0
    assert shelf.woken == 1
    names = [
        (await shelf.skills.version(shelf.workspace, skill.id, one))[1].name
        for one in await shelf.versions(skill)
    ]
    await shelf.skills.delete(shelf.workspace, skill.id)
    uses = await shelf.uses()
    assert [uses[name] for name in names] == [0, 0]
    await refused(shelf.other.get(shelf.workspace, skill.id))
    await refused(shelf.other.version(shelf.workspace, skill.id, second.id))


async def test_no_row_is_made_for_an_object_that_is_gone(shelf: Shelf) -> None:
    skill, version = await shelf.add(), made(1)
    gone = Archive("never", 1)
    call = shelf.skills.add(shelf.workspace, new_skill(version, None), version, gone)
    await refused(call, Reason.UNAVAILABLE)
    await refused(shelf.other.get(shelf.workspace, version.skill_id))
    call = shelf.skills.add_version(shelf.workspace, made(1, skill.id), gone)
    await refused(call, Reason.UNAVAILABLE)
    assert await shelf.other.get(shelf.workspace, skill.id) == skill


async def test_pages_follow_one_another(shelf: Shelf) -> None:
    skills = [await shelf.add(number) for number in (1, 1, 2)]
    first = await shelf.other.page(shelf.workspace, Listing(2))
    assert list(first) == [skills[2], skills[1]]
    after = Position(micros(first[-1].created_at), first[-1].id)
    assert list(await shelf.other.page(shelf.workspace, Listing(2, after))) == [skills[0]]
    versions = [skills[0].latest_version_id]
    versions += [(await shelf.add_version(skills[0], number)).id for number in (3, 3)]
    assert await shelf.versions(skills[0], Listing(1)) == versions[:1:-1]
    after = Position(micros(NOON + timedelta(seconds=3)), versions[2])
    assert await shelf.versions(skills[0], Listing(2, after)) == versions[1::-1]


async def test_versions_are_found_together_wherever_they_are_named(shelf: Shelf) -> None:
    one, two = await shelf.add(1), await shelf.add(1)
    newer = await shelf.add_version(one, 2)
    pins = {
        Pin(one.id, one.latest_version_id): one.latest_version_id,
        Pin(one.id, "latest"): newer.id,
        Pin(two.id, "latest"): two.latest_version_id,
        Pin(two.id, newer.id): None,
        Pin("skill_unknown", "latest"): None,
    }
    found = await shelf.other.find(shelf.workspace, [*pins])
    assert {pin: found[pin].id for pin in found} == {pin: one for pin, one in pins.items() if one}


async def test_nothing_is_seen_or_done_from_another_workspace(shelf: Shelf) -> None:
    skill = await shelf.add()
    await shelf.add_version(skill, 1)
    for call in (
        shelf.skills.get("other", skill.id),
        shelf.skills.version("other", skill.id, "latest"),
        shelf.skills.versions("other", skill.id, Listing(9)),
        shelf.skills.add_version("other", made(2, skill.id), await shelf.archive()),
        shelf.skills.delete_version("other", skill.id, "latest", NOON),
        shelf.skills.delete("other", skill.id),
    ):
        await refused(call)
    assert list(await shelf.skills.page("other", Listing(9))) == []
    assert not await shelf.skills.find("other", [Pin(skill.id, "latest")])
    assert len(await shelf.versions(skill)) == 2


async def test_a_version_of_another_skill_is_none_of_this_one(shelf: Shelf) -> None:
    skill, other = await shelf.add(), await shelf.add()
    await shelf.add_version(other, 1)
    theirs = other.latest_version_id
    told = await refused(shelf.skills.version(shelf.workspace, skill.id, theirs))
    assert told == f"skill {skill.id!r} has no version {theirs!r}"
    await refused(shelf.skills.delete_version(shelf.workspace, skill.id, theirs, NOON))


async def test_each_change_has_its_effect_once(shelf: Shelf) -> None:
    keys = [new_id("key")[-15:] + letter for letter in "ab"]
    first, second = made(1), made(2)
    answers = [
        await shelf.skills.add(
            shelf.workspace,
            new_skill(version, None),
            version,
            await shelf.archive(),
            once(Skill, keys[0]),
        )
        for version in (first, second)
    ]
    assert answers[0] == answers[1]
    await refused(shelf.other.get(shelf.workspace, second.skill_id))
    more = [made(number, first.skill_id) for number in (3, 4)]
    added = [
        await shelf.skills.add_version(
            shelf.workspace, version, await shelf.archive(), once(SkillVersion, keys[1])
        )
        for version in more
    ]
    assert added == [more[0], more[0]]
    await shelf.skills.delete_version(shelf.workspace, first.skill_id, more[0].id, NOON)
    archive, again = await shelf.archive(), once(SkillVersion, keys[1])
    await refused(shelf.skills.add_version(shelf.workspace, more[1], archive, again))
    await shelf.skills.delete(shelf.workspace, first.skill_id)
    skill = new_skill(second, None)
    call = shelf.skills.add(shelf.workspace, skill, second, archive, once(Skill, keys[0]))
    await refused(call)


async def test_the_version_that_came_last_is_the_latest_though_its_process_is_behind_in_time(
    shelf: Shelf,
) -> None:
    skill = await shelf.add(60)
    second = await shelf.add_version(skill, 1)
    third = await shelf.add_version(skill, 1)
    assert await shelf.versions(skill) == [third.id, second.id, skill.latest_version_id]
    found = await shelf.other.get(shelf.workspace, skill.id)
    assert (found.latest_version_id, found.updated_at) == (third.id, third.created_at)
