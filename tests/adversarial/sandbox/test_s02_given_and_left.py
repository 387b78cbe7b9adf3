"""S2 for what is read out of workspaces from outside, and brought into them: outputs, skills that
are found, and files, while somebody swaps what is there for links.

The reader here has every right: nothing but the way it opens things keeps it inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.hands.archive.bounds import BROUGHT, PARTS
from services.hands.bringing import beneath
from services.hands.outputs.scan import Bounds, Changed, Output, Refused, opened, piece, scan
from services.hands.skills import found
from tests.adversarial.sandbox.test_s02_checkpoints import SECRET, meanwhile

ROUNDS = 150
BOUNDS = Bounds()


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Files that are none of the volume's."""
    place = tmp_path / "host"
    for below in ("below", "skills/theirs"):
        (place / below).mkdir(parents=True)
    (place / "file").write_bytes(SECRET)
    (place / "below" / "file").write_bytes(SECRET)
    (place / "skills/theirs/SKILL.md").write_text("---\nname: theirs\ndescription: secret\n---\n")
    return place


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    for part in (*PARTS, *BROUGHT):
        (root / part).mkdir(parents=True)
    return root


def contents(root: Path, output: Output) -> bytes:
    data = b""
    with opened(root, output, BOUNDS) as descriptor:
        while more := piece(descriptor, output, len(data)):
            data += more
    return data


def left(root: Path) -> Iterator[bytes]:
    """What would be published now."""
    for output in scan(root, BOUNDS).files:
        with suppress(Changed, Refused):
            yield contents(root, output)


def test_s2_file_that_becomes_a_link_is_never_followed(volume: Path, host: Path) -> None:
    file, spare = volume / "outputs/file", volume / "outputs/spare"

    def swap(number: int) -> None:
        if number % 2:
            spare.symlink_to(host / "file")
        else:
            spare.write_bytes(b"mine" * 60)
        spare.rename(file)

    with meanwhile(swap):
        for _ in range(ROUNDS):
            assert SECRET not in {*left(volume)}


def test_s2_directory_that_becomes_a_link_is_never_followed(volume: Path, host: Path) -> None:
    below, spare = volume / "outputs/below", volume / "workspace/spare"
    below.mkdir()
    (below / "file").write_bytes(b"mine")

    def swap(_number: int) -> None:
        below.rename(spare)
        below.symlink_to(host / "below")
        below.unlink()
        spare.rename(below)

    with meanwhile(swap):
        for _ in range(ROUNDS):
            assert SECRET not in {*left(volume)}


def test_s2_file_that_is_exchanged_or_written_while_it_is_read_is_not_published_torn(
    volume: Path,
) -> None:
    file, spare = volume / "outputs/file", volume / "outputs/.spare"
    whole = {b"a" * 100_000, b"b" * 100_000}
    file.write_bytes(b"a" * 100_000)

    def swap(number: int) -> None:
        spare.write_bytes((b"a" if number % 2 else b"b") * 100_000)
        spare.rename(file)

    with meanwhile(swap):
        for _ in range(ROUNDS):
            for output in scan(volume, BOUNDS).files:
                with suppress(Changed, Refused):
                    if output.path == "file":
                        assert contents(volume, output) in whole


def test_s2_links_devices_and_pipes_are_refused_and_block_nothing(volume: Path, host: Path) -> None:
    outputs = volume / "outputs"
    (outputs / "link").symlink_to(host / "file")
    (outputs / "way").symlink_to(host)
    os.mkfifo(outputs / "pipe")
    os.link(host / "file", outputs / "elsewhere")
    (outputs / "one").write_bytes(b"two names")
    os.link(outputs / "one", outputs / "two")
    (outputs / os.fsdecode(b"not\xffutf8")).touch()
    (outputs / "line\nbreak").touch()
    with (outputs / "sparse").open("wb") as file:
        file.truncate(300 << 20)
    with (outputs / "giant").open("wb") as file:
        file.truncate(1 << 40)
    found_there = scan(volume, BOUNDS)
    assert found_there.refused.keys() == {
        *("link", "way", "pipe", "elsewhere", "giant", "not\\xffutf8", "line\\x0abreak"),
    }
    assert [output.path for output in found_there.files] == ["one", "sparse", "two"]
    with pytest.raises(Refused, match="sparse"):
        contents(volume, found_there.files[1])
    assert contents(volume, found_there.files[2]) == b"two names"


def test_s2_what_is_looked_at_is_bounded(volume: Path) -> None:
    outputs = volume / "outputs"
    deep = outputs.joinpath(*(["d"] * 70))
    deep.mkdir(parents=True)
    (deep / "file").touch()
    many = outputs / "many"
    many.mkdir()
    for number in range(300):
        (many / str(number)).touch()
    found_there = scan(volume, Bounds(entries=200))
    assert len(found_there.files) < 200
    assert "it is too deep" in found_there.refused.values()
    assert "there is too much to look at" in found_there.refused.values()


def test_s2_skills_are_never_found_through_links(volume: Path, host: Path) -> None:
    place = volume / "workspace" / "repo" / ".claude"
    place.mkdir(parents=True)
    mine = place / "skills/mine"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text("---\ndescription: mine\n---\n")
    (place.parent.parent / "linked").symlink_to(host)
    one = place / "skills/linked"
    one.mkdir()
    (one / "SKILL.md").symlink_to(host / "skills/theirs/SKILL.md")
    os.mkfifo(place / "skills/SKILL.md")
    skills, spare = place / "skills", place / "spare"

    def swap(_number: int) -> None:
        skills.rename(spare)
        skills.symlink_to(host / "skills")
        skills.unlink()
        spare.rename(skills)

    with meanwhile(swap), beneath.opened(volume, "workspace") as workspace:
        for _ in range(ROUNDS):
            assert {skill.name for skill in found.scan(workspace)} <= {"mine"}
    with beneath.opened(volume, "workspace") as workspace:
        assert [skill.name for skill in found.scan(workspace)] == ["mine"]


def test_s2_files_are_never_put_or_taken_away_through_links(volume: Path, host: Path) -> None:
    below, spare = volume / "uploads/below", volume / "uploads/spare"
    below.mkdir()

    def swap(_number: int) -> None:
        below.rename(spare)
        below.symlink_to(host / "below")
        below.unlink()
        spare.rename(below)

    with meanwhile(swap), beneath.opened(volume) as root:
        for number in range(ROUNDS):
            (volume / "new").write_bytes(b"brought")
            with suppress(OSError):
                beneath.put(root, "new", "uploads", f"below/{number}")
            with suppress(OSError), beneath.opened("uploads", at=root) as part:
                beneath.take_away(part, "below/file")
    assert {path.name for path in (host / "below").iterdir()} == {"file"}
    assert (host / "below" / "file").read_bytes() == SECRET
