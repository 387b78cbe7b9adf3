"""What followers of a command see of its output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.hands.domain.printed import Chunk, Follower, Printed


def put(printed: Printed, *pieces: bytes) -> None:
    for piece in pieces:
        printed.put(piece, 0)


def shown(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def dropped(chunks: list[Chunk]) -> int:
    return sum(chunk.dropped for chunk in chunks)


@given(st.text(st.characters(exclude_characters="\x1b\0", exclude_categories=["Cs"])), st.data())
def test_text_cut_anywhere_comes_whole(text: str, data: st.DataObject) -> None:
    printed, whole = Printed(), text.encode()
    follower, chunks, begin = Follower(printed), [], 0
    while begin < len(whole):
        end = data.draw(st.integers(begin + 1, len(whole)))
        put(printed, whole[begin:end])
        chunks += follower.take()
        begin = end
    chunks += follower.take(last=True)
    assert chunks == [Chunk(chunk.text) for chunk in chunks if chunk.text]
    assert shown(chunks) == text


def test_character_that_is_not_whole_waits_for_its_end() -> None:
    printed = Printed()
    follower = Follower(printed)
    put(printed, "a\u20ac".encode()[:-1])
    assert follower.take() == [Chunk("a")]
    put(printed, "\u20ac".encode()[-1:] + b"b")
    assert follower.take() == [Chunk("\u20acb")]


def test_what_is_no_text_is_replaced_as_the_result_replaces_it() -> None:
    printed = Printed()
    put(printed, b"a\xff\0b\xe2\x82")
    follower = Follower(printed)
    assert shown(follower.take() + follower.take(last=True)) == "a\ufffd\ufffdb\ufffd"


def test_control_sequences_are_left_out_wherever_they_are_cut() -> None:
    printed = Printed()
    follower = Follower(printed)
    chunks = []
    for byte in b"a\x1b[1;31mred\x1b[0m\x1b":
        put(printed, bytes([byte]))
        chunks += follower.take()
    assert shown(chunks) == "ared"
    assert shown(follower.take(last=True)) == "\x1b"


def test_sequence_that_never_ends_is_not_held_for_ever() -> None:
    printed = Printed()
    put(printed, b"\x1b[" + b"1" * 100)
    assert shown(Follower(printed).take()) == "\x1b[" + "1" * 100


def test_who_comes_late_sees_what_is_kept_and_how_much_is_not() -> None:
    printed = Printed(kept=10)
    put(printed, b"0123", b"4567", b"89ab", b"cdef")
    assert Follower(printed).take() == [Chunk("89abcdef", 8)]


def test_slow_follower_is_told_what_it_missed_and_another_misses_nothing() -> None:
    printed = Printed(kept=8)
    slow, quick = Follower(printed), Follower(printed)
    put(printed, b"first")
    assert slow.take() == quick.take() == [Chunk("first")]
    seen = []
    for piece in (b"aaaa", b"bbbb", b"cccc"):
        put(printed, piece)
        seen += quick.take()
    assert shown(seen) == "aaaabbbbcccc"
    assert slow.take() == [Chunk("bbbbcccc", 4)]


def test_gap_in_the_middle_of_a_character_leaves_no_broken_one() -> None:
    printed = Printed()
    printed.put("x\u20ac".encode()[:2], 0)
    printed.put("\u20ac".encode()[1:] + b"y", 5)
    chunks = Follower(printed).take(last=True)
    assert shown(chunks) == "xy"
    assert dropped(chunks) == 5 + 3


PLAIN = st.text(st.characters(codec="ascii", exclude_characters="\x1b"), max_size=20)


@given(st.lists(st.tuples(PLAIN, st.integers(0, 9)), max_size=30))
def test_bytes_are_shown_or_counted(pieces: list[tuple[str, int]]) -> None:
    printed = Printed(kept=40, followed=100)
    follower, chunks, total = Follower(printed), [], 0
    for number, (text, lost) in enumerate(pieces):
        printed.put(text.encode(), lost)
        total += len(text) + lost
        if number % 3 == 0:
            chunks += follower.take()
    chunks += follower.take(last=True)
    assert len(shown(chunks)) + dropped(chunks) == total == printed.end


def test_followers_get_so_much_of_a_call_and_the_rest_is_counted() -> None:
    printed = Printed(kept=100, followed=10)
    follower = Follower(printed)
    put(printed, b"0123456", b"789ab", b"cd")
    assert follower.take() == [Chunk("0123456789")]
    assert follower.take(last=True) == [Chunk("", 4)]
