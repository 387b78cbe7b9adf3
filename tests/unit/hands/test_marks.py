"""Marks of running sandboxes: what a later process reads of them, whatever happened to the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from services.hands import boot
from services.hands.backends import marks as module
from services.hands.backends.marks import Marks
from services.hands.backends.process import ProcessId

ONE, OTHER = ProcessId(7, 100), ProcessId(8, 200)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run" / "marks"


def test_what_was_put_last_counts_and_what_was_removed_does_not(file: Path) -> None:
    marks = Marks(file)
    marks.put("hand_1", [ONE])
    marks.put("hand_2", [OTHER])
    marks.put("hand_1", [ONE, OTHER])
    marks.remove("hand_2")
    marks.remove("hand_3")
    assert Marks(file).named() == {"hand_1": [ONE, OTHER]}


def test_nothing_is_there_before_the_first_and_after_they_are_cleared(file: Path) -> None:
    marks = Marks(file)
    assert marks.named() == {}
    marks.clear()
    marks.put("hand_1", [ONE])
    marks.clear()
    assert [*marks.left()] == []


@pytest.mark.parametrize("kept", range(1, 90))
def test_line_that_is_torn_takes_no_other_along(file: Path, kept: int) -> None:
    marks = Marks(file)
    marks.put("hand_1", [ONE])
    whole = file.stat().st_size
    marks.put("hand_2", [OTHER])
    os.truncate(file, whole + kept)
    assert Marks(file).named() == {"hand_1": [ONE]}
    marks.put("hand_3", [OTHER])
    assert Marks(file).named() == {"hand_1": [ONE], "hand_3": [OTHER]}


@pytest.mark.parametrize(
    "line", [b"[]", b"7", b"\xff", b'{"hand":"x"}', b'{"boot":1,"hand":"x","processes":[[1]]}']
)
def test_strange_line_says_nothing(file: Path, line: bytes) -> None:
    marks = Marks(file)
    marks.put("hand_1", [ONE])
    with file.open("ab") as stream:
        stream.write(b"\n" + line + b"\n")
    assert marks.named() == {"hand_1": [ONE]}


def test_numbers_mean_nothing_in_another_life_of_the_machine(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Marks(file).put("hand_1", [ONE])
    monkeypatch.setattr(boot, "boot_id", lambda: "another")
    assert Marks(file).named() == {}


def test_file_is_written_anew_before_it_grows_long(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG", 2000)
    marks = Marks(file)
    marks.put("hand_0", [ONE])
    longest = 0
    for number in range(1, 200):
        marks.put(f"hand_{number}", [OTHER])
        longest = max(longest, file.stat().st_size)
        if number > 1:
            marks.remove(f"hand_{number - 1}")
    assert longest < 3000
    assert Marks(file).named() == {"hand_0": [ONE], "hand_199": [OTHER]}
    assert [*file.parent.iterdir()] == [file]


def test_on_a_full_disk_a_start_is_told_and_an_end_is_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Marks(file)
    marks.put("hand_1", [ONE])
    marks.put("hand_2", [OTHER])

    def short(descriptor: int, content: Any) -> int:
        return _WRITE(descriptor, content[:5])

    monkeypatch.setattr("os.write", short)
    marks.remove("hand_1")  # what it names has ended, and is not taken for another
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        marks.put("hand_3", [ONE])
    monkeypatch.setattr(module, "_LONG", 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        marks.put("hand_3", [ONE])  # nor is the file written anew
    monkeypatch.undo()
    assert Marks(file).named() == {"hand_1": [ONE], "hand_2": [OTHER]}
    assert [*file.parent.iterdir()] == [file]


_WRITE = os.write
