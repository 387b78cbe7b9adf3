"""Skills and their versions over the wire, from an upload to what an agent is given."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from drover.agent.v1 import agent_service_pb2 as agent_pb
from drover.agent.v1.agent_pb2 import Skill, SkillReference
from drover.skill.v1 import skill_service_pb2 as pb
from drover.skill.v1 import skill_version_service_pb2 as version_pb
from drover.skill.v1.skill_service_pb2_grpc import SkillServiceStub
from drover.skill.v1.skill_version_service_pb2_grpc import SkillVersionServiceStub
from services.registry.main import RegistrySettings, build
from tests.doubles.hands_waiting import eventually
from tests.doubles.objects import MemoryObjects
from tests.doubles.request_keys import answered, metadata, named
from tests.doubles.skill_uploads import SKILL_MD, folder, pack
from tests.doubles.standing import PromptExit
from tests.integration.registry.refusal import refusal
from tests.unit.registry.definitions import toolset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import grpc.aio

    from drover.skill.v1.skill_pb2 import Skill as StoredSkill
    from drover.skill.v1.skill_pb2 import SkillVersion

FOLDER = folder({"sums/SKILL.md": SKILL_MD, "sums/add": b"#!/bin/sh\n"})
NEWER = folder({"sums/SKILL.md": SKILL_MD.replace(b"Adds up", b"Adds more")})
BIG = [*FOLDER, pb.SkillPart(path="sums/data"), *[pb.SkillPart(data=bytes(1 << 20))] * 3]


@pytest.fixture
def skills(channel: grpc.aio.Channel) -> Any:
    return SkillServiceStub(channel)


@pytest.fixture
def versions(channel: grpc.aio.Channel) -> Any:
    return SkillVersionServiceStub(channel)


def new(parts: Sequence[pb.SkillPart] = FOLDER, **header: Any) -> list[pb.CreateSkillRequest]:
    return [
        pb.CreateSkillRequest(header=pb.SkillHeader(**header)),
        *(pb.CreateSkillRequest(file=part) for part in parts),
        pb.CreateSkillRequest(complete=True),
    ]


def more(skill_id: str, parts: Sequence[pb.SkillPart] = NEWER) -> list[Any]:
    return [
        version_pb.CreateSkillVersionRequest(header={"skill_id": skill_id}),
        *(version_pb.CreateSkillVersionRequest(file=part) for part in parts),
        version_pb.CreateSkillVersionRequest(complete=True),
    ]


async def create(skills: Any, *parts: Any, **header: Any) -> StoredSkill:
    return (await skills.CreateSkill(iter(new(*parts, **header)))).skill


async def get(versions: Any, skill_id: str, version: str = "latest") -> SkillVersion:
    request = version_pb.GetSkillVersionRequest(skill_id=skill_id, version=version)
    return (await versions.GetSkillVersion(request)).version


async def download(versions: Any, skill_id: str, version: str = "latest") -> bytes:
    request = version_pb.DownloadSkillVersionRequest(skill_id=skill_id, version=version)
    first, *pieces = [one async for one in versions.DownloadSkillVersion(request)]
    content = b"".join(piece.data for piece in pieces)
    assert first.version.sha256 == hashlib.sha256(content).hexdigest()
    return content


def objects(data: Path) -> list[Path]:
    return [path for path in (data / "files").rglob("*") if path.is_file()]


async def until_gone(data: Path, left: int) -> None:
    await eventually(lambda: len(objects(data)) <= left)


async def test_a_skill_is_made_of_a_folder_and_downloaded_as_one_archive(
    skills: Any, versions: Any
) -> None:
    made = await create(skills)
    assert (made.display_name, made.source.WhichOneof("source")) == ("sums", "custom")
    assert made == (await skills.GetSkill(pb.GetSkillRequest(skill_id=made.id))).skill
    latest = await get(versions, made.id)
    assert latest == await get(versions, made.id, made.latest_version_id)
    assert (latest.name, latest.description) == ("sums", "Adds up.")
    assert await download(versions, made.id) == pack(FOLDER).content


async def test_the_newest_version_is_the_latest_until_it_is_deleted(
    skills: Any, versions: Any, tmp_path: Path
) -> None:
    made = await create(skills, BIG)
    second = (await versions.CreateSkillVersion(iter(more(made.id)))).version
    assert await get(versions, made.id) == second
    skill = (await skills.GetSkill(pb.GetSkillRequest(skill_id=made.id))).skill
    assert skill.updated_at.ToMicroseconds() > made.updated_at.ToMicroseconds()
    listed = await versions.ListSkillVersions(
        version_pb.ListSkillVersionsRequest(skill_id=made.id, limit=1)
    )
    assert list(listed.data) == [second]
    rest = version_pb.ListSkillVersionsRequest(skill_id=made.id, limit=1, page=listed.next_page)
    (first,) = (await versions.ListSkillVersions(rest)).data
    assert first.id == made.latest_version_id

    request = version_pb.DeleteSkillVersionRequest(skill_id=made.id, version="latest")
    assert (await versions.DeleteSkillVersion(request)).id == second.id
    assert await get(versions, made.id) == first
    refused = await refusal(versions.DeleteSkillVersion(request))
    assert (refused.reason, "delete the skill" in refused.message) == (
        Reason.INVALID_ARGUMENT,
        True,
    )
    await until_gone(tmp_path, 1)
    assert len(await download(versions, made.id)) > 0


async def test_other_versions_have_the_name_of_the_first(skills: Any, versions: Any) -> None:
    made = await create(skills)
    renamed = folder({"sums/SKILL.md": SKILL_MD.replace(b"name: sums", b"name: adds")})
    refused = await refusal(versions.CreateSkillVersion(iter(more(made.id, renamed))))
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert refused.message.startswith("files: the name is 'adds'")
    unknown = await refusal(versions.CreateSkillVersion(iter(more("skill_unknown"))))
    assert unknown.reason is Reason.NOT_FOUND


async def test_a_deleted_skill_is_gone_with_its_versions_and_their_bytes(
    skills: Any, versions: Any, tmp_path: Path
) -> None:
    made = await create(skills)
    await versions.CreateSkillVersion(iter(more(made.id)))
    await skills.DeleteSkill(pb.DeleteSkillRequest(skill_id=made.id))
    for call in (
        skills.GetSkill(pb.GetSkillRequest(skill_id=made.id)),
        skills.DeleteSkill(pb.DeleteSkillRequest(skill_id=made.id)),
        get(versions, made.id, made.latest_version_id),
        download(versions, made.id),
    ):
        assert (await refusal(call)).reason is Reason.NOT_FOUND
    await until_gone(tmp_path, 0)


async def test_skills_are_listed_newest_first_by_their_source(skills: Any) -> None:
    made = [await create(skills, display_name=f"Sums {number}") for number in range(3)]
    first = await skills.ListSkills(pb.ListSkillsRequest(limit=2, source="custom"))
    assert list(first.data) == [made[2], made[1]]
    request = pb.ListSkillsRequest(limit=2, source="custom", page=first.next_page)
    assert list((await skills.ListSkills(request)).data) == [made[0]]
    other = await skills.ListSkills(pb.ListSkillsRequest(source="anthropic"))
    assert (list(other.data), other.HasField("next_page")) == ([], False)


async def test_a_display_name_may_come_behind_the_files(skills: Any) -> None:
    *requests, complete = new()
    last = pb.CreateSkillRequest(header=pb.SkillHeader(display_name="All sums"))
    made = (await skills.CreateSkill(iter([*requests, last, complete]))).skill
    assert made.display_name == "All sums"
    for wrong in ("", " ", "two\nlines"):
        refused = await refusal(skills.CreateSkill(iter(new(display_name=wrong))))
        assert refused.message.startswith("display_name: ")


async def test_nothing_is_kept_of_an_upload_that_breaks_off_or_is_refused(
    skills: Any, tmp_path: Path
) -> None:
    broken = await refusal(skills.CreateSkill(iter(new(BIG)[:-1])))
    assert broken.reason is Reason.CANCELLED
    refused = await refusal(skills.CreateSkill(iter(new([pb.SkillPart(path="a/b")]))))
    assert refused.message.startswith("files: there is no SKILL.md")
    headless = await refusal(skills.CreateSkill(iter(new()[1:])))
    assert headless.reason is Reason.INVALID_ARGUMENT
    assert list((await skills.ListSkills(pb.ListSkillsRequest())).data) == []
    assert objects(tmp_path) == []

    begun = asyncio.Event()

    async def forever() -> AsyncIterator[pb.CreateSkillRequest]:
        for request in new(BIG)[:-1]:
            yield request
        begun.set()
        await asyncio.Event().wait()

    call = skills.CreateSkill(forever())
    await begun.wait()
    call.cancel()
    assert objects(tmp_path) == []


async def test_a_store_that_fails_leaves_no_skill_behind(
    settings: RegistrySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjects()
    monkeypatch.setattr(RegistrySettings, "store", lambda _: store)
    async with PromptExit() as stack:
        server = await build(settings, stack)
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        skills: Any = SkillServiceStub(channel)
        versions: Any = SkillVersionServiceStub(channel)
        made = await create(skills)
        store.failing = "it is away"
        for call in (
            skills.CreateSkill(iter(new())),
            versions.CreateSkillVersion(iter(more(made.id))),
            download(versions, made.id),
        ):
            refused = await refusal(call)
            assert refused.reason is Reason.UNAVAILABLE
            assert "it is away" in refused.message
        assert list((await skills.ListSkills(pb.ListSkillsRequest())).data) == [made]
        store.failing = ""
        assert await download(versions, made.id) == pack(FOLDER).content
        assert len(store.objects) == 1


async def test_a_skill_is_made_once_for_its_request(skills: Any, versions: Any) -> None:
    def calls(method: Any, requests: list[Any]) -> Any:
        return lambda _request, **more: method(iter(requests), **more)

    made, _ = await answered(calls(skills.CreateSkill, new()), None, named("k"))
    assert await answered(calls(skills.CreateSkill, new()), None, named("k")) == (made, True)
    skill_id = made.skill.id
    for method, request in (
        (calls(versions.CreateSkillVersion, more(skill_id)), None),
        (
            versions.DeleteSkillVersion,
            version_pb.DeleteSkillVersionRequest(skill_id=skill_id, version="latest"),
        ),
        (skills.DeleteSkill, pb.DeleteSkillRequest(skill_id=skill_id)),
    ):
        key = f"{method}"
        first, replayed = await answered(method, request, named(key))
        assert not replayed
        assert await answered(method, request, named(key)) == (first, True)
    gone = skills.CreateSkill(iter(new()), metadata=metadata(named("k")))
    assert (await refusal(gone)).reason is Reason.NOT_FOUND


async def test_an_archive_that_was_changed_where_it_lies_is_told(
    skills: Any, versions: Any, settings: RegistrySettings
) -> None:
    skill = await create(skills)
    [stored] = (one for one in (settings.data_dir / "files").rglob("obj_*") if one.is_file())
    stored.write_bytes(bytes(stored.stat().st_size))
    error = await refusal(download(versions, skill.id))
    assert error.reason is Reason.INTERNAL


async def test_another_workspace_sees_nothing_of_a_skill(
    skills: Any, versions: Any, agents: Any, other_workspace: CallContext
) -> None:
    made = await create(skills)
    with call_context(other_workspace):
        for call in (
            skills.GetSkill(pb.GetSkillRequest(skill_id=made.id)),
            skills.DeleteSkill(pb.DeleteSkillRequest(skill_id=made.id)),
            get(versions, made.id),
            download(versions, made.id),
            versions.CreateSkillVersion(iter(more(made.id))),
            agents.CreateAgent(agent(skill(made.id))),
        ):
            assert (await refusal(call)).reason is Reason.NOT_FOUND
        assert list((await skills.ListSkills(pb.ListSkillsRequest())).data) == []
    assert (await get(versions, made.id)).name == "sums"


def skill(skill_id: str, version: str | None = None) -> Skill:
    return Skill(custom=SkillReference(skill_id=skill_id, version=version))


def agent(*skills: Skill) -> agent_pb.CreateAgentRequest:
    return agent_pb.CreateAgentRequest(
        name="clerk", model={"id": "m"}, tools=[toolset()], skills=skills
    )


async def test_agents_are_pinned_to_versions_with_what_the_model_is_told(
    skills: Any, versions: Any, agents: Any
) -> None:
    stored = await create(skills)
    made = (await agents.CreateAgent(agent(skill(stored.id)))).agent
    (pinned,) = made.skills
    assert pinned.custom == SkillReference(
        skill_id=stored.id,
        version=stored.latest_version_id,
        name="sums",
        description="Adds up.",
    )
    second = (await versions.CreateSkillVersion(iter(more(stored.id)))).version
    resolve = agent_pb.ResolveAgentRequest(selection={"agent": {"id": made.id}})
    assert list((await agents.ResolveAgent(resolve)).agent.skills) == [pinned]
    newer = agent_pb.ResolveAgentRequest(
        selection={"agent_with_overrides": {"id": made.id, "skills": [skill(stored.id, "latest")]}}
    )
    (overridden,) = (await agents.ResolveAgent(newer)).agent.skills
    assert (overridden.custom.version, overridden.custom.description) == (second.id, "Adds more.")
    update = agent_pb.UpdateAgentRequest(agent_id=made.id, skills=[skill(stored.id)])
    updated = (await agents.UpdateAgent(update)).agent
    assert (updated.version, updated.skills[0].custom.version) == (2, second.id)
    assert (await agents.UpdateAgent(update)).agent == updated


async def test_skills_that_are_not_there_are_refused_by_their_paths(
    skills: Any, versions: Any, agents: Any
) -> None:
    stored, other = await create(skills), await create(skills)
    unknown = agent(skill(stored.id), skill("skill_unknown"))
    not_its_own = agent(skill(other.id, stored.latest_version_id))
    for request, told in (
        (unknown, "skills.1: no skill 'skill_unknown'"),
        (not_its_own, "skills.0: skill"),
    ):
        refused = await refusal(agents.CreateAgent(request))
        assert (refused.reason, refused.message.startswith(told)) == (Reason.NOT_FOUND, True)
    made = (await agents.CreateAgent(agent(skill(stored.id)))).agent
    update = agent_pb.UpdateAgentRequest(agent_id=made.id, skills=[skill("skill_unknown")])
    assert (await refusal(agents.UpdateAgent(update))).message.startswith("skills.0: ")

    await versions.CreateSkillVersion(iter(more(stored.id)))
    doomed = version_pb.DeleteSkillVersionRequest(
        skill_id=stored.id, version=stored.latest_version_id
    )
    await versions.DeleteSkillVersion(doomed)
    resolve = agent_pb.ResolveAgentRequest(selection={"agent": {"id": made.id}})
    refused = await refusal(agents.ResolveAgent(resolve))
    assert refused.reason is Reason.NOT_FOUND
    assert refused.message.startswith(f"agent.skills.0: skill {stored.id!r} has no version")


async def test_more_uploads_than_are_taken_at_once_are_told_to_come_again(
    skills: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.registry.rpc.skills.receiving._AT_ONCE", 0)
    busy = await refusal(skills.CreateSkill(iter(new())))
    assert busy.reason is Reason.RESOURCE_EXHAUSTED
    assert busy.retry_after
