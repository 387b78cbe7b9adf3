"""Requests about files, skills and memory that work once, each on things of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fault.repeating import Ground

STORE = "/v1/memory_stores"
VERSION = "{memory_store_id}/memory_versions/{memory_version_id}"
SKILL = b"---\nname: sums\ndescription: Adds.\n---\n"


def file(ground: Ground) -> str:
    with ground.observer as client:
        return client.beta.files.upload(file=("a.txt", b"a")).id


def skill(ground: Ground) -> str:
    with ground.observer as client:
        return client.beta.skills.create(files=[("sums/SKILL.md", SKILL)]).id


def skill_version(ground: Ground) -> str:
    """A version of a skill that has another one."""
    made = skill(ground)
    with ground.observer as client:
        version = client.beta.skills.versions.create(
            made, files=[("sums/SKILL.md", SKILL + b"More.")]
        )
    return f"{made}/versions/{version.id}"


def store(ground: Ground) -> str:
    with ground.observer as client:
        return client.beta.memory_stores.create(name="Notes").id


def memory(ground: Ground) -> str:
    made = store(ground)
    with ground.observer as client:
        memory = client.beta.memory_stores.memories.create(made, path="/a.md", content="a")
    return f"{made}/memories/{memory.id}"


def memory_version(ground: Ground) -> str:
    """A version of a memory that has another one."""
    made = store(ground)
    with ground.observer as client:
        memories = client.beta.memory_stores.memories
        first = memories.create(made, path="/a.md", content="a")
        memories.update(first.id, memory_store_id=made, content="b")
    return f"{made}/memory_versions/{first.memory_version_id}"


SAMPLES: dict[str, Callable[[Ground], tuple[str, Any]]] = {
    "DELETE /v1/files/{file_id}": lambda ground: (f"/v1/files/{file(ground)}", None),
    "DELETE /v1/skills/{skill_id}": lambda ground: (f"/v1/skills/{skill(ground)}", None),
    "DELETE /v1/skills/{skill_id}/versions/{version}": lambda ground: (
        f"/v1/skills/{skill_version(ground)}",
        None,
    ),
    f"POST {STORE}": lambda _: (STORE, {"name": "Notes"}),
    f"POST {STORE}/{{memory_store_id}}": lambda ground: (
        f"{STORE}/{store(ground)}",
        {"description": "another"},
    ),
    f"DELETE {STORE}/{{memory_store_id}}": lambda ground: (f"{STORE}/{store(ground)}", None),
    f"POST {STORE}/{{memory_store_id}}/archive": lambda ground: (
        f"{STORE}/{store(ground)}/archive",
        None,
    ),
    f"POST {STORE}/{{memory_store_id}}/memories": lambda ground: (
        f"{STORE}/{store(ground)}/memories",
        {"path": "/a.md", "content": "a"},
    ),
    f"POST {STORE}/{{memory_store_id}}/memories/{{memory_id}}": lambda ground: (
        f"{STORE}/{memory(ground)}",
        {"content": "b"},
    ),
    f"DELETE {STORE}/{{memory_store_id}}/memories/{{memory_id}}": lambda ground: (
        f"{STORE}/{memory(ground)}",
        None,
    ),
    f"POST {STORE}/{VERSION}/redact": lambda ground: (
        f"{STORE}/{memory_version(ground)}/redact",
        None,
    ),
}
