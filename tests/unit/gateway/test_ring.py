"""What is kept of a session's last frames, and what a reader is owed of it."""

from __future__ import annotations

import pytest

from gateway.ring import Ring
from gateway.sse import Frame


def stamped(number: int, size: int = 1) -> Frame:
    return Frame(b"x" * size, f"sevt_{number}", number)


def echo(number: int) -> Frame:
    return Frame(b"x", f"sevt_{number}", 0)


PREVIEW = Frame(b"x", "", 0, "sevt_9")


def ring(*batches: list[Frame], limit: int = 1_000_000, seconds: float = 100.0) -> Ring:
    """A ring whose batches came a second apart, from 0 on."""
    made = Ring(limit, seconds)
    for second, batch in enumerate(batches):
        made.add(batch, float(second))
    return made


def owed(made: Ring, position: str, newest: str, since: float = 0.0, shown: str = "") -> list[str]:
    found = made.behind(position, newest, since, {shown})
    assert found is not None
    return [frame.id if frame.seq else f"({frame.id})" for frame in found]


def test_a_reader_is_owed_what_is_behind_its_position() -> None:
    made = ring([stamped(1), echo(5)], [stamped(2), stamped(3)], [echo(6), stamped(4)])
    assert owed(made, "sevt_1", "sevt_4") == ["(sevt_5)", "sevt_2", "sevt_3", "(sevt_6)", "sevt_4"]
    assert owed(made, "sevt_2", "sevt_4") == ["sevt_3", "(sevt_6)", "sevt_4"]
    assert owed(made, "sevt_4", "sevt_4") == []


def test_echoes_from_before_it_came_or_that_it_saw_are_not_owed_again() -> None:
    made = ring([stamped(1), echo(5)], [echo(6)], [echo(7)])
    assert owed(made, "sevt_1", "sevt_1", since=1.0) == ["(sevt_6)", "(sevt_7)"]
    assert owed(made, "sevt_1", "sevt_1", since=1.0, shown="sevt_6") == ["(sevt_7)"]


def test_previews_are_never_owed() -> None:
    assert owed(ring([stamped(1), PREVIEW, stamped(2)]), "sevt_1", "sevt_2") == ["sevt_2"]


def test_at_the_end_of_the_log_nothing_has_to_be_here() -> None:
    assert owed(ring(), "sevt_1", "sevt_1") == []
    assert owed(ring([echo(5)]), "", "") == ["(sevt_5)"]


@pytest.mark.parametrize("position", ["sevt_1", "sevt_9", ""])
def test_what_is_gone_or_not_here_yet_is_not_guessed(position: str) -> None:
    made = ring([stamped(1)], [stamped(2)], seconds=0.5)
    assert made.behind(position, "sevt_2", 0.0, ()) is None


def test_an_echo_that_may_be_gone_is_not_passed_over() -> None:
    made = ring([echo(5)], [PREVIEW], seconds=0.5)
    assert made.behind("sevt_1", "sevt_1", 0.0, ()) is None
    assert owed(made, "sevt_1", "sevt_1", since=0.5) == []


def test_the_oldest_go_when_it_is_full() -> None:
    made = ring([stamped(1, 400)], [stamped(2, 400)], [stamped(3, 400)], limit=1_500)
    assert made.read(0, 1_000) is None
    assert owed(made, "sevt_2", "sevt_3") == ["sevt_3"]


def test_a_batch_larger_than_the_ring_is_not_kept() -> None:
    made = ring([stamped(1, 2_000)], limit=1_500)
    assert made.end == 1
    assert made.read(0, 1_000) is None
    assert made.read(1, 1_000) == ([], 1)


def test_late_frames_are_read_by_pieces() -> None:
    made = ring([stamped(1, 400)], [stamped(2, 400)], [stamped(3, 400)])
    frames, number = made.read(0, 1_000) or ([], 0)
    assert ([frame.id for frame in frames], number) == (["sevt_1", "sevt_2"], 2)
    frames, number = made.read(number, 1_000) or ([], 0)
    assert ([frame.id for frame in frames], number) == (["sevt_3"], 3)
