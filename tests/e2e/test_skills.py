"""Skills and their versions, by the official client with strict validation, and by the command."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.lib import files_from_dir

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import MODEL, TOOLSET, run_turn
from tests.e2e.skills import DESCRIPTION, script_skill, skill_md, zipped_skill
from tests.e2e.stack import KEY, ROOT, Stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Anthropic]:
    with stack.client(_strict_response_validation=True) as client:
        yield client


def new_name() -> str:
    return f"sums-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("surface", ["beta", "general"])
def test_skills_and_versions_are_made_read_listed_and_deleted(
    client: Anthropic, surface: str
) -> None:
    skills: Any = client.beta.skills if surface == "beta" else client.skills
    name = new_name()
    made = skills.create(files=[zipped_skill(name)], display_name="Sums of all")
    assert (made.display_name, made.source.type) == ("Sums of all", "custom")
    assert skills.retrieve(made.id) == made
    assert made.id in [skill.id for skill in skills.list(source="custom", limit=5)]
    assert list(skills.list(source="anthropic")) == []
    first = skills.versions.retrieve("latest", skill_id=made.id)
    assert (first.id, first.name) == (made.latest_version_id, name)
    assert first.description == DESCRIPTION

    second = skills.versions.create(made.id, files=script_skill(name))
    assert skills.retrieve(made.id).latest_version_id == second.id
    assert skills.versions.retrieve("latest", skill_id=made.id) == second
    assert [one.id for one in skills.versions.list(made.id)] == [second.id, first.id]
    with pytest.raises(anthropic.BadRequestError):
        skills.versions.create(made.id, files=script_skill(new_name()))
    assert skills.versions.delete(first.id, skill_id=made.id).id == first.id
    assert [one.id for one in skills.versions.list(made.id)] == [second.id]
    assert skills.delete(made.id).id == made.id
    for gone in (skills.retrieve, skills.delete, lambda one: list(skills.versions.list(one))):
        with pytest.raises(anthropic.NotFoundError):
            gone(made.id)


def test_a_version_is_downloaded_as_one_archive_with_what_may_be_executed(
    client: Anthropic,
) -> None:
    name = new_name()
    for files in ([zipped_skill(name)], script_skill(name)):
        made = client.beta.skills.create(files=files)
        version = made.latest_version_id
        packed = client.beta.skills.versions.download(version, skill_id=made.id).read()
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        files_only = {path: mode & 0o111 for path, mode in modes.items() if path[-1] != "/"}
        assert files_only == {f"{name}/SKILL.md": 0, f"{name}/scripts/digest": 0o111}


def test_what_is_no_skill_is_refused_with_a_reason(client: Anthropic) -> None:
    name = new_name()

    def folder(*files: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        return [(f"{name}/{path}", content) for path, content in files]

    good = skill_md(name).encode()
    for files, word in (
        (folder(("README.md", b"x")), "SKILL.md"),
        (folder(("SKILL.md", b"no front matter")), "SKILL.md"),
        (folder(("SKILL.md", skill_md("Not Allowed").encode())), "name"),
        (folder(("SKILL.md", good), ("../up", b"x")), "up"),
        ([*folder(("SKILL.md", good)), ("other/file", b"x")], "other"),
        ([("x.zip", b"PK\x03\x04 torn", "application/zip")], "zip"),
    ):
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.beta.skills.create(files=files)  # type: ignore[arg-type]
        assert word in str(refused.value)


def test_an_agents_skills_are_pinned_and_told_to_the_model_alike_every_time(
    stack: Stack, client: Anthropic
) -> None:
    name = new_name()
    made = client.beta.skills.create(files=[zipped_skill(name)])
    reference: Any = {"type": "custom", "skill_id": made.id}
    agent = client.beta.agents.create(
        name="clerk",
        model=MODEL,
        tools=[TOOLSET],
        skills=[reference],  # type: ignore[list-item]
    )
    client.beta.skills.versions.create(
        made.id, files=[(f"{name}/SKILL.md", skill_md(name, "Newer").encode())]
    )
    environment = client.beta.environments.create(name=f"desk-{uuid.uuid4().hex}")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    assert [skill.version for skill in session.agent.skills] == [made.latest_version_id]
    stack.model.script(
        tools(ToolUse("read", {"file_path": f"/mnt/skills/{name}/SKILL.md"})),
        text("done"),
        text("again"),
    )
    seen = run_turn(client, session.id, "work")
    (read,) = [event for event in seen if event.type == "agent.tool_result"]
    assert "Run scripts/digest." in read.content[0].text
    run_turn(client, session.id, "more")
    systems = {str(request.body["system"]) for request in stack.model.requests}
    assert len(systems) == 1
    assert DESCRIPTION in systems.pop()
    for wrong in ({"skill_id": "skill_unknown"}, {"skill_id": made.id, "version": "skver_unknown"}):
        with pytest.raises(anthropic.APIStatusError) as refused:
            client.beta.agents.create(
                name="c",
                model=MODEL,
                tools=[TOOLSET],
                skills=[{"type": "custom", **wrong}],  # type: ignore[list-item,typeddict-item]
            )
        assert refused.value.status_code in {400, 404}
        assert "skills.0" in str(refused.value)
    with pytest.raises(anthropic.BadRequestError, match="skills push"):
        client.beta.agents.create(
            name="c",
            model=MODEL,
            tools=[TOOLSET],  # type: ignore[list-item]
            skills=[{"type": "anthropic", "skill_id": "xlsx"}],
        )


def test_a_folder_is_pushed_by_the_command_and_then_again_as_a_version(
    stack: Stack, client: Anthropic, tmp_path: Path
) -> None:
    name = new_name()
    folder = tmp_path / name
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill_md(name))
    script = folder / "scripts" / "digest"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)

    def push() -> str:
        pushed = subprocess.run(
            [sys.executable, "-m", "cli.main", "skills", "push", str(folder)],
            env={**os.environ, "DROVER_URL": stack.url, "DROVER_API_KEY": KEY},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        return pushed.stdout

    first = push()
    (made,) = [skill for skill in client.beta.skills.list() if skill.display_name == name]
    assert made.id in first
    script.write_text("#!/bin/sh\necho changed\n")
    second = push()
    versions = [version.id for version in client.beta.skills.versions.list(made.id)]
    assert len(versions) == 2
    assert versions[0] in second
    # As the SDK's own helper reads a folder, too.
    client.beta.skills.versions.create(made.id, files=files_from_dir(str(folder)))
