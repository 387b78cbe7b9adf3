"""The file tools, with a directory of the host in the place of the sandbox's."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from services.hands.runner import files, limits, paths
from services.hands.runner.failure import ToolFailure

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 10
PDF = b"%PDF-1.7\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "workspace"
    work.mkdir()
    monkeypatch.setattr(paths, "WORKDIR", str(work))
    monkeypatch.setattr(paths, "ROOTS", (str(work), str(tmp_path / "session")))
    return work


def refusal(call: object, *arguments: object, **named: object) -> str:
    with pytest.raises(ToolFailure) as refused:
        call(*arguments, **named)  # type: ignore[operator]
    return str(refused.value)


def test_write_makes_parents_and_counts_bytes(work: Path) -> None:
    assert files.write("a/b/c.txt", "grün\n")["text"] == "wrote 6 bytes to a/b/c.txt"
    assert (work / "a/b/c.txt").read_bytes() == "grün\n".encode()


def test_write_overwrites_in_place(work: Path) -> None:
    path = work / "x.sh"
    path.write_text("long content")
    path.chmod(0o755)
    before = path.stat().st_ino
    files.write("x.sh", "s")
    assert path.read_text() == "s"
    assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (before, 0o755)


def test_read_returns_text_as_it_is(work: Path) -> None:
    (work / "x").write_bytes(b"a\r\nb\0\n")
    assert files.read("x")["text"] == "a\r\nb\ufffd\n"
    assert files.read(str(work / "x"))["text"] == "a\r\nb\ufffd\n"


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (1, 2, "one\ntwo"),
        (2, 2, "two"),
        (2, 0, "two\nthree\n"),
        (2, -1, "two\nthree\n"),
        (3, 99, "three\n"),
        (-5, 1, "one"),
        (9, 10, ""),
        (3, 2, ""),
    ],
)
def test_read_returns_lines(work: Path, first: int, last: int, text: str) -> None:
    (work / "x").write_text("one\ntwo\nthree\n")
    assert files.read("x", [first, last])["text"] == text


def test_read_finds_lines_across_chunks(work: Path) -> None:
    (work / "x").write_text("".join(f"{number:05}\n" for number in range(50_000)))
    assert files.read("x", [40_000, 40_001])["text"] == "39999\n40000"


def test_text_over_the_limit_needs_a_range(work: Path) -> None:
    (work / "x").write_text("y" * 100 + "\n" + "x" * limits.TEXT_FILE)
    text = refusal(files.read, "x")
    assert text == (
        f"read: x is {limits.TEXT_FILE + 101} bytes, exceeds {limits.TEXT_FILE}-byte limit. Use "
        "the view_range parameter to read specific line ranges, e.g. view_range: [1, 500]."
    )
    assert files.read("x", [1, 1])["text"] == "y" * 100
    assert "Narrow the view_range" in refusal(files.read, "x", [1, 2])
    (work / "z").write_text("x" * (limits.TEXT_FILE + 1))
    assert "cannot return part of a line" in refusal(files.read, "z", [1, 1])


def test_read_of_more_than_a_model_is_shown_is_a_preview_of_the_file(work: Path) -> None:
    (work / "x").write_text("A" + "x" * 200_000 + "Z")
    text = files.read("x")["text"]
    assert text.startswith("A")
    assert text.endswith("Z")
    assert "from x: use view_range" in text
    assert len(text) < 12_000


@pytest.mark.parametrize(
    ("name", "content", "kind", "media_type"),
    [
        ("a.png", PNG, "image", "image/png"),
        ("a.PNG", PNG, "image", "image/png"),
        ("misnamed.png", b"\xff\xd8\xff\xe0", "image", "image/jpeg"),
        ("a.gif", b"GIF89a", "image", "image/gif"),
        ("a.webp", b"RIFF\0\0\0\0WEBP", "image", "image/webp"),
        ("a.pdf", PDF, "document", "application/pdf"),
    ],
)
def test_images_and_pdfs_are_blocks(
    work: Path, name: str, content: bytes, kind: str, media_type: str
) -> None:
    (work / name).write_bytes(content)
    block = files.read(name)["block"]
    assert (block["type"], block["media_type"]) == (kind, media_type)
    assert base64.b64decode(block["data"]) == content


def test_file_that_is_not_what_its_name_says_is_refused(work: Path) -> None:
    (work / "a.png").write_text("hello")
    (work / "a.pdf").write_bytes(PNG)
    (work / "b.png").write_bytes(PDF)
    for name in ("a.png", "a.pdf", "b.png"):
        assert "whatever its name says" in refusal(files.read, name)


def test_images_and_pdfs_have_limits_and_no_ranges(work: Path) -> None:
    with (work / "a.png").open("wb") as file:
        file.write(PNG)
        file.truncate(limits.IMAGE_BASE64 // 4 * 3 + 1)
    assert "limit for image/PDF files" in refusal(files.read, "a.png")
    assert "view_range is not supported" in refusal(files.read, "a.png", [1, 2])


def test_edit_replaces_what_occurs_once(work: Path) -> None:
    (work / "x").write_text("a b c")
    assert files.edit("x", "b", "β")["text"] == "edited x (1 replacement(s))"
    assert (work / "x").read_text() == "a β c"


def test_edit_shortens_a_file(work: Path) -> None:
    (work / "x").write_text("keep remove keep")
    files.edit("x", " remove keep", "")
    assert (work / "x").read_text() == "keep"


def test_edit_names_missing_and_multiple_matches(work: Path) -> None:
    (work / "x").write_text("a a")
    assert refusal(files.edit, "x", "z", "") == "edit: old_string not found in x"
    assert refusal(files.edit, "x", "a", "") == (
        "edit: old_string appears 2 times in x (must be unique)"
    )
    assert files.edit("x", "a", "b", replace_all=True)["text"] == "edited x (2 replacement(s))"


def test_binary_files_are_not_text(work: Path) -> None:
    (work / "x").write_bytes(b"\xff\xfe")
    assert "not valid UTF-8 text" in refusal(files.read, "x")
    assert "not valid UTF-8 text" in refusal(files.edit, "x", "a", "b")


def test_what_is_no_regular_file_is_refused_without_waiting(work: Path) -> None:
    os.mkfifo(work / "fifo")
    for call in (
        lambda: files.read("fifo"),
        lambda: files.read("."),
        lambda: files.edit("fifo", "a", "b"),
    ):
        assert "not a regular file" in refusal(call)
    assert refusal(files.write, "fifo", "x").startswith("write: fifo: ")
    assert "is a directory" in refusal(files.write, ".", "x")
    assert refusal(files.read, "none") == "read: none: no such file or directory"
    assert refusal(files.read, "fifo/x") == "read: fifo/x: not a directory"


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "a/../../secret", "/", ".."])
def test_paths_that_lead_out_are_refused(work: Path, path: str) -> None:
    (work.parent / "secret").write_text("host")
    for call in (lambda: files.read(path), lambda: files.write(path, "x")):
        assert "outside the session's working directory" in refusal(call)
    assert (work.parent / "secret").read_text() == "host"


def test_links_that_lead_out_are_refused(work: Path) -> None:
    secret = work.parent / "secret"
    secret.write_text("host")
    (work / "file").symlink_to(secret)
    (work / "directory").symlink_to(work.parent)
    (work / "dangling").symlink_to(work.parent / "new")
    (work / "loop").symlink_to("loop")
    for path in ("file", "directory/secret", "dangling"):
        assert "outside the session's working directory" in refusal(files.read, path)
        assert "outside the session's working directory" in refusal(files.write, path, "x")
    assert secret.read_text() == "host"
    assert not (work.parent / "new").exists()
    assert "too many levels of symbolic links" in refusal(files.read, "loop")


def test_links_that_stay_inside_are_followed(work: Path) -> None:
    (work / "real").mkdir()
    (work / "real" / "x").write_text("inside")
    (work / "link").symlink_to("real")
    assert files.read("link/x")["text"] == "inside"


def test_link_swapped_in_after_the_check_is_not_followed(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = work.parent / "secret"
    secret.write_text("host")
    (work / "d").mkdir()
    (work / "d" / "x").write_text("inside")
    resolve = paths.resolve

    def resolve_then_swap(path: str) -> str:
        canonical = resolve(path)
        (work / "d" / "x").unlink()
        (work / "d").rmdir()
        (work / "d").symlink_to(work.parent)
        secret.rename(work.parent / "x")
        return canonical

    monkeypatch.setattr(paths, "resolve", resolve_then_swap)
    refusal(files.write, "d/x", "overwritten")
    assert (work.parent / "x").read_text() == "host"


@pytest.mark.usefixtures("work")
def test_nul_in_a_path_is_refused() -> None:
    assert "null byte" in refusal(files.read, "a\0b")
