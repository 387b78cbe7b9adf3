from __future__ import annotations

import hashlib
import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import DroverError, Reason
from drover.skill.v1.skill_service_pb2 import SkillPart
from services.registry.domain.skills.upload import IN_MEMORY
from tests.doubles.skill_uploads import SKILL_MD, archive, entry, folder, pack, zipped

SCRIPT = b"#!/bin/sh\necho sums\n"
FILES = {"sums/SKILL.md": SKILL_MD, "sums/scripts/add": SCRIPT, "sums/data/größe.csv": b"1\n"}


def refusal(parts: list[SkillPart]) -> str:
    with pytest.raises(DroverError) as refused:
        pack(parts)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value.message


def test_a_folder_and_an_archive_of_it_become_the_same_bytes() -> None:
    made = pack(folder(FILES))
    assert made.sha256 == hashlib.sha256(made.content).hexdigest()
    assert made.files() == FILES
    assert made.executable() == {"sums/scripts/add"}
    others = [
        folder(dict(reversed(FILES.items()))),
        archive(
            zipped((entry("sums/scripts/add", 0o100755), SCRIPT), ("sums/data/größe.csv", b"1\n"))
        ),
        archive(
            zipped(
                ("sums/data/", b""),
                *[(entry(path, system=0), FILES[path]) for path in list(FILES)[1:]],
            )
        ),
    ]
    for parts in others:
        assert pack(parts).content == made.content


def test_who_says_what_may_be_executed_is_believed_and_else_its_first_bytes() -> None:
    said = pack(folder(FILES | {"sums/run": b"\x7fELF"}, ["sums/run"]))
    assert said.executable() == {"sums/scripts/add", "sums/run"}
    entries = (entry("sums/a", 0o100644), SCRIPT), (entry("sums/b", 0o100710), b"")
    from_windows = entry("sums/c", system=0), SCRIPT
    assert pack(archive(zipped(*entries, from_windows))).executable() == {"sums/b", "sums/c"}


def test_a_skill_has_its_own_name_and_not_its_folders() -> None:
    renamed = {path.replace("sums/", "My Folder/"): content for path, content in FILES.items()}
    assert pack(folder(renamed)).content == pack(folder(FILES)).content


def test_a_skill_without_a_name_has_its_folders_or_its_archives() -> None:
    nameless = SKILL_MD.replace(b"name: sums\n", b"")
    assert pack(folder({"sums-2/SKILL.md": nameless})).text.name == "sums-2"
    bare = io.BytesIO()
    with zipfile.ZipFile(bare, "w") as target:
        target.writestr("SKILL.md", nameless)
        target.writestr("deep/SKILL.md", b"no matter")
    made = pack(archive(bare.getvalue(), "sums-3.zip"))
    assert (made.text.name, set(made.files())) == (
        "sums-3",
        {"sums-3/SKILL.md", "sums-3/deep/SKILL.md"},
    )


def test_what_macos_adds_is_left_out() -> None:
    litter = {"__MACOSX/sums/._SKILL.md": b"", "sums/.DS_Store": b"", "sums/data/.DS_Store": b""}
    assert pack(folder(FILES | litter)).files() == FILES
    assert pack(archive(zipped(*litter.items()))).files() == {"sums/SKILL.md": SKILL_MD}


def test_names_that_a_packer_wrote_in_utf8_without_saying_so_are_read() -> None:
    content = bytearray(zipped(("sums/größe", b"")))
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.rindex(mark) + place + 1
        content[at] &= ~0x08
    assert "sums/größe" in pack(archive(bytes(content))).files()


def test_an_archive_that_was_streamed_is_read() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

        def seek(self, *_: object) -> int:
            raise OSError

    made = Pipe()
    with zipfile.ZipFile(made, "w") as target:
        target.writestr("sums/SKILL.md", SKILL_MD)
        target.writestr("sums/a", b"data")
        with target.open("sums/b", "w", force_zip64=True) as opened:  # as if it might grow so
            opened.write(b"more")
    files = pack(archive(made.getvalue())).files()
    assert (files["sums/a"], files["sums/b"]) == (b"data", b"more")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "there are none"),
        ({"sums/README.md": b""}, "no SKILL.md at the root"),
        ({"sums/skill.md": SKILL_MD}, "found 'sums/skill.md'"),
        ({"sums/a/SKILL.md": SKILL_MD}, "found 'sums/a/SKILL.md'"),
        ({"SKILL.md": SKILL_MD}, "no zip archive, and in no folder"),
        ({"SKILL.md": SKILL_MD, "a": b""}, "in no folder"),
        ({"sums/SKILL.md": b"# Sums"}, "'sums/SKILL.md': it does not begin with front matter"),
        (
            {"sums/SKILL.md": b'---\ndescription: "\\Uffffffff"\n---\n'},
            "'sums/SKILL.md': its front matter is not YAML",
        ),
        (
            {"sums/SKILL.md": b'---\ndescription: "\\ud800"\n---\n'},
            "'sums/SKILL.md': the description has the character U+D800",
        ),
        ({"sums/.DS_Store": b""}, "there is no SKILL.md"),
    ],
)
def test_what_is_no_skill_is_refused_naming_the_file(files: dict[str, bytes], reason: str) -> None:
    assert reason in refusal(folder(files))


def test_pieces_belong_to_the_file_before_them() -> None:
    assert "says no path" in refusal([SkillPart(data=b"x")])
    size = IN_MEMORY // 2
    parts = [
        *folder({"sums/SKILL.md": SKILL_MD}),
        SkillPart(path="sums/data", data=b"a" * size),
        SkillPart(data=b"b" * size),
        SkillPart(data=b"c" * size),
    ]
    assert pack(parts).files()["sums/data"] == b"a" * size + b"b" * size + b"c" * size


NAMES = st.text("abé.-_ ", min_size=1, max_size=3).filter(lambda name: name.strip("."))


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=40), st.booleans()), max_size=5))
def test_whatever_is_in_a_folder_is_in_the_archive(files: dict[str, tuple[bytes, bool]]) -> None:
    paths = {f"sums/data/{name}": content for name, content in files.items()}
    contents = {"sums/SKILL.md": SKILL_MD} | {path: data for path, (data, _) in paths.items()}
    executable = {path for path, (_, executable) in paths.items() if executable}
    try:
        made = pack(folder(contents, executable))
    except DroverError as refused:
        assert "is there already" in refused.message  # noqa: PT017  # names that Unicode folds
        return
    assert made.files() == contents
    by_themselves = {path for path, data in contents.items() if data.startswith(b"#!")}
    assert made.executable() == executable | by_themselves
