from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.hands.runner import limits, paths, search
from services.hands.runner.failure import ToolFailure


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "workspace"
    for name in ("a.py", "sub/b.py", "sub/deep/c.py", "sub/d.txt", ".hidden/e.py"):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\nprint('{name}')\n")
    monkeypatch.setattr(paths, "WORKDIR", str(work))
    monkeypatch.setattr(paths, "ROOTS", (str(work),))
    return work


def found(work: Path, pattern: str, path: str | None = None) -> set[str]:
    text = search.glob(pattern, path)["text"]
    lines = [] if text == "no matches" else text.split("\n")
    return {str(Path(line).relative_to(work)) for line in lines}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", {"a.py"}),
        ("**/*.py", {"a.py", "sub/b.py", "sub/deep/c.py", ".hidden/e.py"}),
        ("sub/**/*.py", {"sub/b.py", "sub/deep/c.py"}),
        ("sub/**", {"sub/b.py", "sub/deep", "sub/deep/c.py", "sub/d.txt"}),
        ("**/deep/*", {"sub/deep/c.py"}),
        ("*/[bd].*", {"sub/b.py", "sub/d.txt"}),
        ("sub/*.{py,txt}", {"sub/b.py", "sub/d.txt"}),
        ("./a.py", {"a.py"}),
        ("sub/?.py", {"sub/b.py"}),
        ("none*", set()),
    ],
)
def test_glob_finds_what_the_pattern_says(work: Path, pattern: str, names: set[str]) -> None:
    assert found(work, pattern) == names


def test_glob_searches_below_a_path(work: Path) -> None:
    assert found(work, "*.py", "sub") == {"sub/b.py"}


def test_glob_lists_newest_first_and_no_more_than_the_limit(work: Path) -> None:
    for number in range(limits.GLOB_PATHS + 50):
        (work / f"{number:04}.log").touch()
        os.utime(work / f"{number:04}.log", (number, number))
    lines = search.glob("*.log")["text"].split("\n")
    assert len(lines) == limits.GLOB_PATHS
    assert lines[0] == str(work / "0249.log")
    assert lines == sorted(lines, reverse=True)


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "sub/../../*"])
def test_glob_does_not_lead_out(pattern: str) -> None:
    with pytest.raises(ToolFailure, match="not permitted"):
        search.glob(pattern)


def test_search_follows_no_link_out(work: Path) -> None:
    (work.parent / "secret.py").write_text("needle")
    (work / "out").symlink_to(work.parent)
    (work / "file.py").symlink_to(work.parent / "secret.py")
    assert found(work, "out/*.py") == set()
    assert found(work, "file.py") == set()
    assert search.grep("needle")["text"] == "no matches"
    for call in (lambda: search.grep("x", "out"), lambda: search.glob("*", "out")):
        with pytest.raises(ToolFailure, match="outside the session's working directory"):
            call()


def test_search_ends_on_links_in_circles(work: Path) -> None:
    (work / "sub" / "again").symlink_to(work)
    assert "sub/again/a.py" not in found(work, "**/*.py")


@pytest.mark.usefixtures("work")
def test_braces_without_end_are_refused() -> None:
    with pytest.raises(ToolFailure, match="alternatives"):
        search.glob("{a,b}" * 20)


def test_grep_shows_path_line_and_text(work: Path) -> None:
    text = search.grep(r"print\('sub/\w", "sub")["text"]
    assert text.split("\n") == [
        f"{work}/sub/b.py:2:print('sub/b.py')",
        f"{work}/sub/d.txt:2:print('sub/d.txt')",
        f"{work}/sub/deep/c.py:2:print('sub/deep/c.py')",
    ]


def test_grep_of_one_file_shows_its_path_too(work: Path) -> None:
    assert search.grep("#", "a.py")["text"] == f"{work}/a.py:1:# a.py"


@pytest.mark.usefixtures("work")
def test_grep_without_matches_says_so() -> None:
    assert search.grep("nowhere")["text"] == "no matches"


def test_grep_knows_posix_classes(work: Path) -> None:
    (work / "x").write_text("AB12\n")
    assert search.grep("^[[:upper:]]+[[:digit:]]+$", "x")["text"] == f"{work}/x:1:AB12"


def test_grep_skips_binaries_and_stores_of_others(work: Path) -> None:
    (work / "bin").write_bytes(b"needle\0")
    for name in (".git", "node_modules"):
        (work / name).mkdir()
        (work / name / "x").write_text("needle")
    assert search.grep("needle")["text"] == "no matches"


def test_grep_cuts_long_lines_and_long_answers(work: Path) -> None:
    (work / "long").write_text("x" * 10_000 + "needle\n")
    line = search.grep("needle", "long")["text"]
    assert line == f"{work}/long:1:" + "x" * limits.GREP_LINE
    (work / "many").write_text("needle\n" * 100_000)
    text = search.grep("needle", "many")["text"]
    assert len(text.encode()) <= 100 * 1024
    assert text.endswith(f"[output truncated at {limits.GREP_OUTPUT} bytes]")


def test_grep_counts_lines_behind_a_very_long_one(work: Path) -> None:
    (work / "x").write_text("y" * (3 * 1024 * 1024) + "\nneedle\n")
    assert search.grep("needle", "x")["text"] == f"{work}/x:2:needle"


def test_text_of_any_encoding_is_shown(work: Path) -> None:
    (work / "x").write_bytes(b"needle \xff\r\n")
    assert search.grep("needle", "x")["text"] == f"{work}/x:1:needle \ufffd"


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?P<n>", "a{99999999999}"])
def test_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ToolFailure, match="grep: invalid regex"):
        search.grep(pattern)


@pytest.mark.usefixtures("work")
def test_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(ToolFailure, match="grep: none: no such file or directory"):
        search.grep("x", "none")
