"""What a session is given and what it leaves, over the whole stack, in each kind of sandbox.

A file, a skill with a script, a memory store; and what is written to the outputs directory.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic

from tests.doubles.docker_engine import Engine
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import MODEL, TOOLSET, run_turn
from tests.e2e.skills import script_skill
from tests.e2e.stack import Stack, running_stack, wait_for

TABLE = "name,sum\nÅse,3\n".encode()


@pytest.fixture(scope="module")
def furnished(docker_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose environments choose between the host's sandboxes and the engine's."""
    place = tmp_path_factory.mktemp("stack")
    with running_stack(place, brains=1, DOCKER_HOST=docker_engine.host) as running:
        yield running


@pytest.fixture
def client(furnished: Stack) -> Iterator[Anthropic]:
    furnished.model.reset()
    with furnished.client(_strict_response_validation=True) as client:
        yield client


def bash(*commands: str) -> Any:
    return tools(*(ToolUse("bash", {"command": command}) for command in commands))


def said(events: list[Any]) -> list[str]:
    """The text of every call's result, in the order of the calls; none is an error."""
    results = {event.tool_use_id: event for event in events if event.type == "agent.tool_result"}
    assert not any(event.is_error for event in results.values()), results
    calls = [event.id for event in events if event.type == "agent.tool_use"]
    return ["".join(block.text for block in results[call].content) for call in calls]


def outputs(client: Anthropic, session_id: str, *names: str) -> dict[str, Any]:
    """The files that a session has left, by their names, once they are all there."""
    found: dict[str, Any] = {}

    def left() -> bool:
        listed = client.beta.files.list(scope_id=session_id, betas=["managed-agents-2026-04-01"])
        found.update({file.filename: file for file in listed if file.downloadable})
        return found.keys() >= {*names}

    wait_for(left, "what the session has left", 60)
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["local", "docker"])
def test_session_reads_its_file_uses_a_skill_remembers_and_leaves_what_another_one_needs(
    furnished: Stack, client: Anthropic, kind: str
) -> None:
    model = furnished.model
    uploaded = client.beta.files.upload(file=("Tabelle ü.csv", TABLE, "text/csv"))
    skill = client.beta.skills.create(files=script_skill(f"sums-{kind}"))
    store = client.beta.memory_stores.create(name="Team Notes", description="What the team knows")
    environment = client.beta.environments.create(
        name=f"desk-{uuid.uuid4().hex}", metadata={"drover.sandbox": kind}
    )
    agent = client.beta.agents.create(
        name="clerk",
        model=MODEL,
        tools=[TOOLSET],  # type: ignore[list-item]
        skills=[{"type": "custom", "skill_id": skill.id}],
    )
    (resolved,) = agent.skills
    assert resolved.version == skill.latest_version_id
    resources: Any = [
        {"type": "file", "file_id": uploaded.id, "mount_path": "/mnt/session/uploads/in/t.csv"},
        {
            "type": "memory_store",
            "memory_store_id": store.id,
            "instructions": "Note what is worth keeping.",
        },
    ]
    session = client.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, resources=resources
    )
    given, memory = session.resources
    assert given.type == "file"
    assert given.file_id != uploaded.id
    assert memory.type == "memory_store"
    assert memory.mount_path == "/mnt/memory/team-notes"

    script = f"/mnt/skills/sums-{kind}/scripts/digest"
    model.script(
        bash(
            "sha256sum </mnt/session/uploads/in/t.csv; "
            "echo x 2>/dev/null >>/mnt/session/uploads/in/t.csv || echo read-only",
            f"{script} </mnt/session/uploads/in/t.csv",
        ),
        bash(
            "mkdir -p /mnt/memory/team-notes/people"
            " && printf 'Åse wants sums' >/mnt/memory/team-notes/people/ase.md",
            "head -c 300000 /dev/urandom >/mnt/session/outputs/noise.bin"
            " && sha256sum </mnt/session/outputs/noise.bin"
            " && mkdir /mnt/session/outputs/sub"
            " && cp /mnt/session/uploads/in/t.csv /mnt/session/outputs/sub/copy.csv",
        ),
        text("done"),
    )
    seen = run_turn(client, session.id, "work")
    shown, counted, noted, digest = said(seen)
    assert hashlib.sha256(TABLE).hexdigest() in shown
    assert "read-only" in shown
    assert counted.strip() == f"{len(TABLE)} bytes"
    assert noted.strip() in {"", "(no output)"}
    # In the store before the turn is idle, and whoever looks sees who wrote it.
    (note,) = client.beta.memory_stores.memories.list(store.id, view="full")
    assert note.type == "memory"
    assert (note.path, note.content) == ("/people/ase.md", "Åse wants sums")
    system = str(model.requests[-1].body["system"])
    for told in (f"sums-{kind}", "Counts the bytes", "/mnt/memory/team-notes", "What the team"):
        assert told in system, told

    left = outputs(client, session.id, "noise.bin", "sub/copy.csv")
    noise = client.beta.files.download(left["noise.bin"].id).read()
    assert len(noise) == 300_000
    assert hashlib.sha256(noise).hexdigest() == digest.split()[0]
    assert client.beta.files.download(left["sub/copy.csv"].id).read() == TABLE

    # Another agent, another session: it finds what the first has noted, and goes on from there.
    other = client.beta.agents.create(name="other", model=MODEL, tools=[TOOLSET])  # type: ignore[list-item]
    second = client.beta.sessions.create(
        agent=other.id,
        environment_id=environment.id,
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    model.script(
        bash("cat /mnt/memory/team-notes/people/ase.md"),
        bash("printf ' of all' >>/mnt/memory/team-notes/people/ase.md"),
        text("done"),
    )
    read, _ = said(run_turn(client, second.id, "read"))
    assert read == "Åse wants sums"
    changed = client.beta.memory_stores.memories.retrieve(note.id, memory_store_id=store.id)
    assert changed.content == "Åse wants sums of all"
    versions = list(client.beta.memory_stores.memory_versions.list(store.id, memory_id=note.id))
    assert [version.operation for version in versions] == ["modified", "created"]
    writers = [version.created_by for version in versions]
    assert [getattr(writer, "session_id", None) for writer in writers] == [second.id, session.id]
