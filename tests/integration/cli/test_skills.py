"""`drover skills` against a gateway with a real registry behind it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog
from anthropic import AsyncAnthropic
from typer.testing import CliRunner

from chassis.ids import new_id
from cli.main import app
from gateway.main import build as build_gateway
from gateway.settings import GatewaySettings
from services.registry.main import RegistrySettings
from services.registry.main import build as build_registry
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "key-of-the-tests"
NOWHERE = "127.0.0.1:1"


@dataclass
class Stack:
    url: str
    client: AsyncAnthropic

    async def run(self, *arguments: str, key: str = KEY) -> tuple[int, str, str]:
        """The exit code, standard output and standard error of `drover skills …`."""
        environment = {
            "DROVER_URL": self.url,
            "DROVER_API_KEY": key,
            "COLUMNS": "300",
            "ANTHROPIC_API_KEY": None,
        }
        runner = CliRunner(env=environment)
        done = await asyncio.to_thread(runner.invoke, app, ["skills", *arguments])
        return done.exit_code, done.stdout, done.stderr

    async def pushed(self, folder: Path, *more: str) -> str:
        code, out, err = await self.run("push", str(folder), *more)
        assert (code, err) == (0, "")
        return out

    async def refused(self, *arguments: str) -> str:
        code, out, err = await self.run(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("drover: ")
        return err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    data = tmp_path_factory.mktemp("data")
    token = data / "token"
    token.write_text("a-token-for-tests")
    async with PromptExit() as exits:
        exits.enter_context(structlog.testing.capture_logs())  # the commands have the output
        registry = await build_registry(
            RegistrySettings(data_dir=data, token_file=token, reflection=False), exits
        )
        gateway = await build_gateway(
            GatewaySettings(
                data_dir=data,
                token_file=token,
                listen="127.0.0.1:0",
                api_key=KEY,
                registry_address=registry.address,
                session_address=NOWHERE,
                hands_address=NOWHERE,
                vault_proxy_address=NOWHERE,
                brain_addresses=(NOWHERE,),
            ),
            exits,
        )
        url = f"http://{gateway.address}"
        async with AsyncAnthropic(base_url=url, api_key=KEY) as client:
            yield Stack(url, client)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A skill whose name is its folder's."""
    made = tmp_path / new_id("s").lower().replace("_", "-")
    (made / "scripts").mkdir(parents=True)
    (made / "SKILL.md").write_text("---\ndescription: Adds up.\n---\n")
    (made / "scripts" / "add").write_text("echo sums\n")
    (made / "scripts" / "add").chmod(0o755)
    return made


async def test_a_folder_becomes_a_skill_and_then_its_next_version(
    stack: Stack, folder: Path
) -> None:
    first = await stack.pushed(folder, "--name", "All [sums]")
    assert first.startswith("created skill_")
    skill_id = first.split()[1]
    skill = await stack.client.beta.skills.retrieve(skill_id)
    assert (skill.display_name, skill.latest_version_id in first) == ("All [sums]", True)
    second = await stack.pushed(folder)
    assert second.startswith("added version skver_")
    assert f"to {skill_id} ({folder.name})" in second
    assert second.split()[2] != skill.latest_version_id
    told = await stack.refused("push", str(folder), "--name", "Other")
    assert "is shown as 'All [sums]', which stays so: leave --name out" in told

    code, listed, _ = await stack.run("list")
    (line,) = [line for line in listed.splitlines() if skill_id in line]
    assert code == 0
    assert f"{folder.name} (All [sums]): Adds up." in line
    assert second.split()[2] in line
    _, as_json, _ = await stack.run("list", "--json")
    (entry,) = [one for one in map(json.loads, as_json.splitlines()) if one["id"] == skill_id]
    assert entry["latest_version"]["name"] == folder.name

    assert (await stack.run("remove", folder.name))[:2] == (0, f"removed {skill_id}\n")
    assert f"no skill is named {folder.name}" in await stack.refused("remove", folder.name)
    assert "404: " in await stack.refused("remove", skill_id)


async def test_what_is_executable_stays_so_and_links_are_what_they_lead_to(
    stack: Stack, folder: Path
) -> None:
    (folder / "scripts" / "sum").symlink_to("add")
    (folder / "zeros").write_bytes(bytes(2 << 20))
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    skill_id = (await stack.pushed(folder)).split()[1]
    answer = await stack.client.beta.skills.versions.download("latest", skill_id=skill_id)
    with zipfile.ZipFile(io.BytesIO(await answer.read())) as archive:
        modes = {one.filename: one.external_attr >> 16 for one in archive.infolist()}
        assert archive.read(f"{folder.name}/zeros") == bytes(2 << 20)
    assert modes == {
        f"{folder.name}/SKILL.md": 0o100644,
        f"{folder.name}/scripts/add": 0o100755,
        f"{folder.name}/scripts/sum": 0o100755,
        f"{folder.name}/zeros": 0o100644,
    }


async def test_what_is_no_skill_is_told_before_anything_is_sent(
    stack: Stack, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = folder / "link"
    for target, told in ((outside, "link to a folder"), ("/etc/hostname", "not in the folder")):
        link.symlink_to(target)
        assert told in await stack.refused("push", str(folder))
        link.unlink()
    for made in (Path.touch, Path.mkdir):
        unnamed = Path(os.fsdecode(os.fsencode(folder) + b"/gr\xf6\xdfe"))
        made(unnamed)
        told = await stack.refused("push", str(folder))
        assert rf"{folder.name}/gr\udcf6\udcdfe has a name that is not UTF-8" in told
        (unnamed.unlink if unnamed.is_file() else unnamed.rmdir)()
    told = await stack.refused("push", str(folder), "--name", "gr\udcf6")
    assert r"--name gr\udcf6 is not UTF-8" in told
    os.mkfifo(folder / "pipe")
    assert "is no file" in await stack.refused("push", str(folder))
    (folder / "SKILL.md").write_text("# Sums")
    assert "SKILL.md: it does not begin with front matter" in await stack.refused(
        "push", str(folder)
    )
    (folder / "SKILL.md").write_text('---\ndescription: "\\Uffffffff"\n---\n')
    assert "SKILL.md: its front matter is not YAML" in await stack.refused("push", str(folder))
    assert "has no SKILL.md at its root" in await stack.refused("push", str(outside))
    assert "401: " in (await stack.run("remove", "skill_1", key="wrong"))[2]


async def test_of_skills_of_one_name_none_is_chosen(stack: Stack, folder: Path) -> None:
    await stack.pushed(folder)
    twin = await stack.client.beta.skills.create(
        files=[(f"{folder.name}/SKILL.md", (folder / "SKILL.md").read_bytes())]
    )
    for command in (("push", str(folder)), ("remove", folder.name)):
        told = await stack.refused(*command)
        assert "several skills are named" in told
        assert twin.id in told


async def test_what_is_shown_of_a_skill_is_spelled_out_where_it_cannot_be_seen(
    stack: Stack, folder: Path
) -> None:
    skill_id = (await stack.pushed(folder, "--name", "fdp\u202eexe")).split()[1]
    _, listed, _ = await stack.run("list")
    (line,) = [line for line in listed.splitlines() if skill_id in line]
    assert r"(fdp\u202eexe): Adds up." in line
