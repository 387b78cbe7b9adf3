from __future__ import annotations

from pathlib import Path

import pytest

from services.hands.runner import limits
from services.hands.runner.output import Output, decode, spill


def produce(path: Path, *chunks: bytes) -> str:
    output = Output()
    output.begin(str(path))
    for chunk in chunks:
        output.feed(chunk)
    return output.finish()


def test_short_output_is_itself_without_its_last_line_ends(tmp_path: Path) -> None:
    assert produce(tmp_path / "x", b"a\n", b"b\n\n") == "a\nb"
    assert not (tmp_path / "x").exists()


def test_bytes_that_are_no_text_are_replaced_by_rule() -> None:
    assert decode(b"a\xff\xfe\x00b\xed\xa0\x80") == "a���b���".replace("�", "\ufffd")
    assert decode("ü€😀".encode()) == "ü€😀"


def test_colours_are_taken_out(tmp_path: Path) -> None:
    assert produce(tmp_path / "x", b"\x1b[31mred\x1b[0m\x1b[2K") == "red"


def test_long_output_is_in_a_file_and_its_two_ends_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    lines = [b"line %07d\n" % number for number in range(100_000)]
    text = produce(path, *lines)
    assert text.startswith("line 0000000\n")
    assert text.endswith("line 0099999")
    assert f"1300000 bytes and is in {path}" in text
    assert len(text) < 12_000
    assert path.read_bytes() == b"".join(lines)


def test_endless_line_keeps_memory_flat_and_the_file_bounded(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    output = Output()
    output.begin(str(path))
    for _ in range(200):
        output.feed(b"x" * 256 * 1024)
        assert len(output._tail) <= limits.BASH_OUTPUT
    output.feed(b"END")
    text = output.finish()
    assert text.endswith("xEND")
    assert f"has {200 * 256 * 1024 + 3} bytes" in text
    stored = path.read_bytes()
    assert limits.SPILL_BYTES < len(stored) < limits.SPILL_BYTES + 2 * limits.BASH_OUTPUT
    assert stored.endswith(b"xEND")


def test_file_that_cannot_be_written_loses_the_middle_and_nothing_else(tmp_path: Path) -> None:
    text = produce(tmp_path / "missing" / "x", b"head" + b"x" * 300_000 + b"tail")
    assert text.startswith("head")
    assert text.endswith("tail")
    assert "could not be written" in text


def test_link_that_waits_at_the_files_place_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "x").symlink_to(victim)
    produce(tmp_path / "x", b"x" * 300_000)
    assert victim.read_text() == "precious"


def test_output_of_the_background_comes_with_the_next_call(tmp_path: Path) -> None:
    output = Output()
    output.begin(str(tmp_path / "1"))
    assert output.finish() == ""
    output.feed(b"from behind\n")
    output.begin(str(tmp_path / "2"))
    output.feed(b"front\n")
    assert output.finish() == "from behind\nfront"


@pytest.mark.parametrize("length", [1, limits.RESULT_CHARACTERS])
def test_result_up_to_the_limit_is_shown_whole(tmp_path: Path, length: int) -> None:
    assert spill("ü" * length, str(tmp_path / "x")) == "ü" * length


def test_longer_result_is_a_preview_with_the_path(tmp_path: Path) -> None:
    text = "a" + "ü" * limits.RESULT_CHARACTERS
    shown = spill(text, str(tmp_path / "x"))
    assert str(tmp_path / "x") in shown
    assert (tmp_path / "x").read_text() == text
    assert len(shown) < 12_000
