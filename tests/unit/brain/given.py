"""Sessions that were given something: skills, memory stores, files."""

from __future__ import annotations

from drover.agent.v1.agent_pb2 import Skill, SkillReference
from drover.agent.v1.tool_pb2 import Tool
from drover.session.v1.session_pb2 import (
    FileResource,
    MemoryStoreResource,
    Session,
    SessionResource,
)
from tests.unit.brain import logs

UPLOADS = "/mnt/session/uploads"


def skill(name: str, number: int = 1) -> Skill:
    return Skill(
        custom=SkillReference(
            skill_id=f"skill_{number}",
            version=f"skver_{number}",
            name=name,
            description=f"Makes {name}.",
        )
    )


def store(slug: str, access: str = "read_write", instructions: str = "") -> SessionResource:
    return SessionResource(
        memory_store=MemoryStoreResource(
            memory_store_id=f"memstore_{slug}",
            access=access,
            instructions=instructions or None,
            name=slug.title(),
            description=f"About\n{slug}.",
            mount_path=f"/mnt/memory/{slug}",
        )
    )


def file(path: str) -> SessionResource:
    return SessionResource(
        file=FileResource(file_id=f"file_{path}", mount_path=f"{UPLOADS}/{path}")
    )


def session(
    *tools: Tool,
    skills: tuple[Skill, ...] = (),
    resources: tuple[SessionResource, ...] = (),
    self_hosted: bool = False,
) -> Session:
    made = logs.session(*tools, self_hosted=self_hosted)
    made.agent.skills.extend(skills)
    made.resources.extend(resources)
    return made
