"""Which files a session takes, where they lie, and that nothing lies in the place of another."""

from __future__ import annotations

import itertools

import pytest

from chassis.errors import DroverError, Reason
from drover.environment.v1 import environment_pb2
from drover.session.v1 import session_pb2 as pb
from services.session.domain.resources import files, given, kinds

UPLOADS = "/mnt/session/uploads"


def file(file_id="file_1", **fields):
    return pb.SessionResource(file=pb.FileResource(file_id=file_id, **fields))


def counted():
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_new{next(numbers)}"


def accept(*asked):
    return given.accept(asked, (), counted())


def refused(*asked):
    with pytest.raises(DroverError) as caught:
        accept(*asked)
    return caught.value


def test_a_session_has_a_copy_of_a_file_under_the_name_that_was_given():
    made = accept(file())
    (copy,) = made.copies
    assert (copy.path, copy.file_id) == ("resources.0.file_id", "file_1")
    kept = made.resources[0].file
    assert kept.file_id == copy.copy_id != "file_1"
    assert kept.id.startswith("sesrsc_")
    assert kept.mount_path == f"{UPLOADS}/file_1"


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [
        ("data.csv", "data.csv"),
        ("/data.csv", "data.csv"),
        ("/workspace/data.csv", "workspace/data.csv"),
        (f"{UPLOADS}/a/b.csv", "a/b.csv"),
        ("mnt/session/uploads/x", "mnt/session/uploads/x"),
        ("Übersicht 2026 – 概要.pdf", "Übersicht 2026 – 概要.pdf"),
        ("wide\u3000space", "wide\u3000space"),
        ("...", "..."),
    ],
)
def test_every_file_lies_below_the_uploads(wanted, placed):
    kept = accept(file(mount_path=wanted)).resources[0].file
    assert kept.mount_path == f"{UPLOADS}/{placed}"


@pytest.mark.parametrize(
    "wanted",
    [
        *("", "/", ".", "..", "a/", "a//b", "//a", "a/../b", "./a", "../a", "/..", UPLOADS),
        *(f"{UPLOADS}/", f"{UPLOADS}/../outputs/x", "a\nb", "a\0", "a\x7f", "a\x85", "a\u2028b"),
        *("x" * 256, "ü" * 128, "/".join(["x" * 200] * 6)),
    ],
)
def test_paths_that_no_file_can_have_are_refused(wanted):
    error = refused(file(), file(mount_path=wanted))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("resources.1.mount_path: ")


@pytest.mark.parametrize("file_id", ["", "../../etc/passwd", "a/b", "file_1\n", "x" * 129])
def test_what_can_be_no_files_id_is_not_found(file_id):
    error = refused(file(file_id, mount_path="x"))
    assert error.reason is Reason.NOT_FOUND
    assert error.message.startswith("resources.0.file_id: ")


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("a", "/a"), ("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")]
)
def test_files_do_not_lie_in_each_others_place(first, second):
    error = refused(file(mount_path=first), file(mount_path=second))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("resources.1.mount_path: ")
    assert "resources.0" in error.message


def test_a_file_is_given_twice_in_two_places_only():
    assert refused(file(), file()).message.startswith("resources.1.mount_path: ")
    made = accept(file(), file(mount_path="again"), file(mount_path="again-"))
    assert len({copy.copy_id for copy in made.copies}) == 3


def test_five_hundred_files_are_all_that_a_session_has():
    many = [file(mount_path=f"d/{number}") for number in range(500)]
    there = accept(*many).resources
    error = refused(*many, file())
    assert (error.reason, error.message.partition(":")[0]) == (
        Reason.INVALID_ARGUMENT,
        "resources",
    )
    with pytest.raises(DroverError) as caught:
        files.check_room(there, pb.FileResource(mount_path=f"{UPLOADS}/more"))
    assert caught.value.message.startswith("file_id: ")


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/c"])
def test_a_file_that_is_added_lies_in_nobodys_place(place):
    there = accept(file(mount_path="a/b")).resources
    with pytest.raises(DroverError) as caught:
        files.check_room(there, pb.FileResource(mount_path=f"{UPLOADS}/{place}"))
    assert caught.value.message.startswith("mount_path: ")
    files.check_room(there, pb.FileResource(mount_path=f"{UPLOADS}/a/c"))


def test_only_a_file_is_taken_away():
    repository = pb.GithubRepositoryResource(id="sesrsc_2", url="https://github.com/a/b")
    there = (*accept(file()).resources, pb.SessionResource(github_repository=repository))
    rest, file_id = files.without(there, there[0].file.id)
    assert (rest, file_id) == (there[1:], there[0].file.file_id)
    for other, reason in {"sesrsc_2": Reason.INVALID_ARGUMENT, "x": Reason.NOT_FOUND}.items():
        with pytest.raises(DroverError) as caught:
            files.without(there, other)
        assert caught.value.reason is reason


def test_another_session_has_copies_of_its_own():
    there = accept(file(), file("file_2")).resources
    ours, copies = files.copied(there, counted())
    assert [copy.file_id for copy in copies] == [one.file.file_id for one in there]
    assert [one.file.file_id for one in ours] == [copy.copy_id for copy in copies]
    assert [one.file.id for one in ours] == [one.file.id for one in there]


def test_workers_machines_have_no_files():
    workers = environment_pb2.EnvironmentConfig()
    workers.self_hosted.SetInParent()
    with pytest.raises(DroverError) as caught:
        kinds.check_environment(accept(file()).resources, workers)
    assert caught.value.message.startswith("resources: ")
    store = pb.SessionResource(memory_store=pb.MemoryStoreResource(memory_store_id="m"))
    kinds.check_environment([store], workers)


def test_files_come_back_from_an_export_as_they_were():
    there = accept(file(), file(mount_path="a/b")).resources
    kinds.stamp(there, 1_000_000)
    assert given.restore(there, "session.resources") == there


@pytest.mark.parametrize(
    "told",
    [
        file("file_1"),
        file("file_1", id="x", mount_path=f"{UPLOADS}/a"),
        file("../x", id="sesrsc_1", mount_path=f"{UPLOADS}/a"),
        file("file_1", id="sesrsc_1", mount_path="/etc/passwd"),
        file("file_1", id="sesrsc_1", mount_path=f"{UPLOADS}/../x"),
        pb.SessionResource(),
    ],
)
def test_an_export_brings_no_file_that_no_session_could_have(told):
    with pytest.raises(DroverError) as caught:
        given.restore([told], "session.resources")
    assert caught.value.message.startswith("session.resources.0")
