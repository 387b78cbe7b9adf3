"""What sessions are given and what they leave, in real sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.mounts import MountedFile, MountedSkill, Mounts
from tests.doubles.hands_registry import HOME, TEXT, RegistryDouble, registry_double, skill_archive
from tests.doubles.hands_stack import HandsStack, Sandboxes, chosen, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Session:
    """One session over the stack, of a test's own."""

    def __init__(self, hands: HandsStack, registry: RegistryDouble, directory: Path) -> None:
        self.hands = hands
        self.registry = registry
        self.id = new_id("sesn")
        self.root = directory / "hands" / "workspaces" / self.id
        self.mounts = Mounts(HOME)

    async def run(self, tool: str, **given: object) -> ExecuteResponse:
        return await self.hands.executor.execute(
            *(self.id, new_id("sevt"), 1, tool, json.dumps(given)), given=self.mounts
        )

    async def bash(self, command: str) -> ExecuteResponse:
        return await self.run("bash", command=command)

    async def said(self, command: str) -> str:
        result = await self.bash(command)
        assert not result.is_error, text(result)
        return text(result)

    def file(self, path: str, data: bytes) -> str:
        """Gives the session a file, from its next call on."""
        file_id = new_id("file")
        self.registry.file(file_id, data, self.id)
        files = (*self.mounts.files, MountedFile(file_id, path))
        self.mounts = Mounts(HOME, files, self.mounts.skills)
        return file_id

    def skill(self, directory: str) -> None:
        skill_id = new_id("skill")
        self.registry.skill(skill_id, "1", skill_archive())
        skills = (*self.mounts.skills, MountedSkill(skill_id, "1", directory))
        self.mounts = Mounts(HOME, self.mounts.files, skills)

    def left(self) -> dict[str, bytes]:
        """What the session has published."""
        published = self.registry.published
        return {name: data for (session, name), data in published.items() if session == self.id}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=("local", "docker"))
async def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[HandsStack, RegistryDouble, Path]]:
    sandboxes: Sandboxes = chosen(request)
    directory = tmp_path_factory.mktemp("given")
    async with (
        registry_double() as (double, client),
        sandboxes.stack(directory, registry=client) as hands,
    ):
        yield hands, double, directory


@pytest_asyncio.fixture(loop_scope="module")
async def session(stack: tuple[HandsStack, RegistryDouble, Path]) -> AsyncIterator[Session]:
    session = Session(*stack)
    yield session
    session.registry.away, session.registry.refuse = False, None
    await session.hands.executor.release(session.id, purge=True)
    await session.hands.executor.purge(session.id, 0)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_files_are_there_byte_for_byte_before_the_first_call_and_cannot_be_changed(
    session: Session,
) -> None:
    data = bytes(range(256)) * 5000
    session.file("deep/in/data.bin", data)
    session.file("naïve “name” 📄.txt", b"text\n")
    place = "/mnt/session/uploads"
    said = await session.said(
        f"cd {place} && sha256sum < deep/in/data.bin && cat na*; stat -c %a *"
    )
    assert hashlib.sha256(data).hexdigest() in said
    assert "text\n" in said
    assert "444" in said
    for command in (f"echo x > {place}/new", f"chmod 777 {place}/na*", f"rm -rf {place}/deep"):
        refused = await session.bash(f"LC_ALL=C {command}")
        assert "Read-only file system" in text(refused)


async def test_files_come_and_go_while_the_sandbox_lives_and_none_is_brought_twice(
    session: Session,
) -> None:
    first = session.file("a/first", b"1")
    assert await session.said("cat /mnt/session/uploads/a/first; cd /tmp; x=here") == "1"
    second = session.file("a/second", b"2")
    assert await session.said("cat /mnt/session/uploads/a/*; echo $x") == "12here"
    session.mounts = Mounts(HOME, session.mounts.files[1:])
    assert await session.said("ls /mnt/session/uploads/a; echo $x") == "second\nhere"
    session.mounts = Mounts(HOME)
    assert await session.said("ls -A /mnt/session/uploads; echo $x") == "here"
    assert session.registry.read.count(first) == session.registry.read.count(second) == 1


async def test_what_cannot_be_had_is_named_the_call_goes_on_and_it_comes_when_it_can(
    session: Session,
) -> None:
    here = session.file("here", b"1")
    gone = session.file("gone", b"2")
    data = session.registry.files.pop((HOME, gone))
    result = await session.bash("cat /mnt/session/uploads/here")
    assert text(result).startswith("1")
    [error] = result.errors
    assert gone in error.message
    assert "/mnt/session/uploads/gone" in error.message
    session.registry.file(gone, data, session.id)
    hand, existing = await session.hands.executor.provision(session.id, 1, given=session.mounts)
    assert existing
    assert not hand.problems
    assert await session.said("cat /mnt/session/uploads/*") == "21"
    assert session.registry.read.count(here) == 1


async def test_other_workspaces_files_are_not_brought(session: Session) -> None:
    file_id = session.file("data", b"secret")
    session.registry.files["wrkspc_other", file_id] = session.registry.files.pop((HOME, file_id))
    result = await session.bash("ls -A /mnt/session/uploads")
    assert file_id in result.errors[0].message
    assert text(result) == ""


async def test_skills_can_be_read_and_run_and_not_be_changed(session: Session) -> None:
    session.skill("adding")
    session.skill("adding-2")
    assert await session.said("/mnt/skills/adding-2/scripts/add.sh 2 3") == "5"
    read = await session.run("read", file_path="/mnt/skills/adding/SKILL.md")
    assert TEXT.decode().splitlines()[-1] in text(read)
    assert "555" in await session.said("stat -c %a /mnt/skills/adding/scripts/add.sh")
    assert "Read-only" in text(await session.bash("LC_ALL=C touch /mnt/skills/adding/new"))


async def test_outputs_are_published_byte_for_byte_and_again_when_they_change(
    session: Session,
) -> None:
    await session.said(
        "cd /mnt/session/outputs && mkdir -p charts && head -c 700000 /dev/urandom > charts/a.bin"
        " && printf 'naïve' > 'ü n.txt' && : > empty"
    )
    await until(lambda: len(session.left()) == 3)
    kept = session.left()
    assert kept["ü n.txt"] == "naïve".encode()
    assert kept["empty"] == b""
    assert kept["charts/a.bin"] == (session.root / "outputs/charts/a.bin").read_bytes()
    await session.said("cd /mnt/session/outputs && rm empty && printf 'more' >> 'ü n.txt'")
    await until(lambda: session.left()["ü n.txt"] == "naïvemore".encode())
    assert session.left()["empty"] == b""  # what was published stays
    await session.said("true")
    assert session.registry.uploads.count("charts/a.bin") == 1
    assert session.registry.workspaces == {HOME}


async def test_what_is_no_file_is_refused_with_a_reason_and_told_once(session: Session) -> None:
    await session.said(
        "cd /mnt/session/outputs && ln -s /etc/passwd link && mkfifo pipe && truncate -s 60M sparse"
        r" && touch $'not\xffutf8' && ln -s / deep && echo fine > fine && mkdir d && chmod 0 d"
    )
    await until(lambda: "fine" in session.left())
    await until(lambda: session.hands.news(session.id))
    told = text(await session.bash("true"))
    assert "[not published from /mnt/session/outputs: " in told
    for path, why in (
        ("link", "symbolic link"),
        ("pipe", "pipe"),
        ("sparse", "bytes"),
        ("deep", "symbolic link"),
        (r"not\xffutf8", "UTF-8"),
    ):
        assert path in told
        assert why in told
    assert "not published" not in text(await session.bash("true"))
    assert session.left() == {"fine": b"fine\n"}


async def test_what_is_left_is_published_before_the_session_lets_go_of_its_hand(
    session: Session,
) -> None:
    session.registry.away = True
    await session.said("echo last > /mnt/session/outputs/last; (sleep 0.1; echo no) &")
    session.registry.away = False
    await session.hands.executor.release(session.id)
    assert session.left() == {"last": b"last\n"}


async def test_outputs_wait_for_a_registry_that_is_away(session: Session) -> None:
    session.registry.refuse = DroverError(Reason.UNAVAILABLE, "away")
    await session.said("echo kept > /mnt/session/outputs/kept")
    await until(lambda: session.hands.failures(session.id))
    assert session.left() == {}
    session.registry.refuse = None
    await until(session.left)
    assert session.left() == {"kept": b"kept\n"}


async def test_found_skills_are_told_once_with_the_first_call_over_a_workspace(
    session: Session,
) -> None:
    made = await session.bash(
        "cd /workspace && mkdir -p .claude/skills/one repo/.claude/skills/two a/.claude"
        " && ln -s /etc a/.claude/skills && cd .claude/skills/one"
        " && printf -- '---\\nname: one\\ndescription: First.\\n---\\n' > SKILL.md"
        " && cd /workspace/repo/.claude/skills/two"
        " && printf -- '---\\ndescription: >\\n  The\\n  second.\\n---\\n' > SKILL.md"
    )
    assert not made.found_skills  # nothing was there when it was made
    await session.hands.pool.release(session.id)
    first, second = await session.bash("true"), await session.bash("true")
    assert [(one.name, one.description, one.path) for one in first.found_skills] == [
        ("one", "First.", "/workspace/.claude/skills/one/SKILL.md"),
        ("two", "The second.", "/workspace/repo/.claude/skills/two/SKILL.md"),
    ]
    assert not second.found_skills
    await session.hands.pool.release(session.id)
    assert not (await session.bash("true")).found_skills
