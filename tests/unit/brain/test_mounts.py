"""What of a session is brought into its sandboxes, by the session alone."""

from __future__ import annotations

from chassis import rules
from services.brain.domain import mounts
from tests.unit.brain import given, logs


def test_files_skills_and_stores_are_brought_to_their_places() -> None:
    session = given.session(
        skills=(given.skill("pdf"),),
        resources=(given.store("notes"), given.file("a/b.csv"), given.store("law", "read_only")),
    )
    brought = mounts.of(session)
    assert brought is not None
    rules.check(brought)
    assert brought == mounts.of(session)
    (file,), (skill,) = brought.files, brought.skills
    assert (file.file_id, file.mount_path) == ("file_a/b.csv", "/mnt/session/uploads/a/b.csv")
    assert (skill.skill_id, skill.version, skill.directory) == ("skill_1", "skver_1", "pdf")
    assert [(it.mount_path, it.read_only) for it in brought.memory_stores] == [
        ("/mnt/memory/notes", False),
        ("/mnt/memory/law", True),
    ]


def test_nothing_is_brought_where_there_is_nothing_or_where_workers_bring_it() -> None:
    assert mounts.of(logs.session()) is None
    given_all = given.session(
        skills=(given.skill("pdf"),), resources=(given.store("notes"),), self_hosted=True
    )
    assert mounts.of(given_all) is None


def test_skills_of_one_name_have_directories_of_their_own_in_the_agents_order() -> None:
    names = ("pdf", "pdf", "pdf-2", "pdf")
    skills = tuple(given.skill(name, number) for number, name in enumerate(names))
    agent = given.session(skills=skills).agent
    found = {directory: one.skill_id for directory, one in mounts.skills(agent).items()}
    assert found == {
        "pdf": "skill_0",
        "pdf-2": "skill_1",
        "pdf-2-2": "skill_2",
        "pdf-3": "skill_3",
    }


def test_name_that_is_no_directory_leads_nowhere_else() -> None:
    agent = given.session(skills=(given.skill("../x"), given.skill("", 2))).agent
    assert list(mounts.skills(agent)) == ["skill-1", "skill-2"]
