"""Which memory stores a session takes, and what it keeps of them."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.memory.v1 import memory_pb2
from drover.session.v1 import session_pb2 as pb
from services.session.domain.resources import given, kinds


def attached(store_id="memstore_1", **fields):
    return pb.SessionResource(
        memory_store=pb.MemoryStoreResource(memory_store_id=store_id, **fields)
    )


def accept(*asked):
    return given.accept(asked, (), lambda prefix: f"{prefix}_1")


def named(*names):
    """Stores of these names as a session has them."""
    made = accept(*(attached(f"memstore_{number}") for number in range(len(names))))
    made.fill(
        {
            f"memstore_{number}": memory_pb2.MemoryStore(id=f"memstore_{number}", name=name)
            for number, name in enumerate(names)
        }
    )
    return [one.memory_store for one in made.resources]


def test_a_session_keeps_what_a_store_was_called():
    made = accept(attached(instructions="Note preferences."), attached("m2", access="read_only"))
    assert made.stores == ["memstore_1", "m2"]
    made.fill(
        {
            "memstore_1": memory_pb2.MemoryStore(name="User Preferences", description="Likes"),
            "m2": memory_pb2.MemoryStore(name="Rules"),
        }
    )
    first, second = (one.memory_store for one in made.resources)
    assert first == pb.MemoryStoreResource(
        memory_store_id="memstore_1",
        access="read_write",
        instructions="Note preferences.",
        name="User Preferences",
        description="Likes",
        mount_path="/mnt/memory/user-preferences",
    )
    assert second == pb.MemoryStoreResource(
        memory_store_id="m2",
        access="read_only",
        name="Rules",
        description="",
        mount_path="/mnt/memory/rules",
    )
    assert kinds.identified(made.resources[0]) is None


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("User Preferences", "user-preferences"),
        ("  --A_b..C--  ", "a-b-c"),
        ("../../etc", "etc"),
        ("日本語", "memory"),
        ("Größe 2", "gr-e-2"),
        ("x" * 255, "x" * 200),
    ],
)
def test_a_directory_has_a_plain_name(name, slug):
    assert named(name)[0].mount_path == f"/mnt/memory/{slug}"


def test_stores_of_one_name_have_directories_of_their_own():
    paths = [one.mount_path for one in named("Notes", "notes", "Notes 2", "NOTES")]
    slugs = ["notes", "notes-2", "notes-2-2", "notes-3"]
    assert paths == [f"/mnt/memory/{slug}" for slug in slugs]


def test_a_store_that_is_not_there_or_archived_is_refused_by_its_path():
    store = memory_pb2.MemoryStore(name="Notes")
    store.archived_at.seconds = 1
    for stores, reason in (({}, Reason.NOT_FOUND), ({"memstore_1": store}, Reason.ARCHIVED)):
        with pytest.raises(DroverError) as caught:
            accept(attached()).fill(stores)
        assert caught.value.reason is reason
        assert caught.value.message.startswith("resources.0.memory_store_id: ")


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ([attached(), attached("m2"), attached()], "resources.2.memory_store_id"),
        ([attached(f"m{number}") for number in range(9)], "resources"),
    ],
)
def test_eight_stores_are_given_each_once(asked, path):
    with pytest.raises(DroverError) as caught:
        accept(*asked)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.message.startswith(f"{path}: ")


def test_stores_come_back_from_an_export_as_they_were():
    made = accept(attached(instructions=""), attached("m2", access="read_only"))
    made.fill({one: memory_pb2.MemoryStore(name="Notes") for one in made.stores})
    assert given.restore(made.resources, "session.resources") == made.resources


@pytest.mark.parametrize(
    "fields",
    [
        {"access": "all"},
        {"mount_path": "/mnt/memory/../x"},
        {"mount_path": "/etc"},
        {"name": "x" * 256},
        {"instructions": "x" * 4097},
        {"memory_store_id": ""},
    ],
)
def test_an_export_brings_no_store_that_no_session_could_have(fields):
    whole = {"access": "read_write", "mount_path": "/mnt/memory/x", "memory_store_id": "m"}
    told = pb.SessionResource(memory_store=pb.MemoryStoreResource(**(whole | fields)))
    with pytest.raises(DroverError) as caught:
        given.restore([told], "session.resources")
    assert caught.value.message.startswith("session.resources.0")
