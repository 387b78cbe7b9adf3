from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from catalogue.resources.paging import CursorBinding, Position, cut
from catalogue.resources.stamps import bound
from chassis.errors import DroverError, Reason

HERE = CursorBinding(("agents", "wrkspc_home", "False"))
POSITION = Position(1_796_000_000_000_000, "agent_0142")


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_is_read_back_where_it_was_written(order: int, item_id: str) -> None:
    position = Position(order, item_id)
    assert HERE.read(HERE.write(position)) == position


@pytest.mark.parametrize(
    "parts",
    [
        ("agents", "wrkspc_home", "True"),
        ("agents", "wrkspc_other", "False"),
        ("environments", "wrkspc_home", "False"),
        ("agentsw", "rkspc_home", "False"),
    ],
)
def test_a_cursor_of_another_list_is_refused(parts: tuple[str, ...]) -> None:
    cursor = CursorBinding(parts).write(POSITION)
    with pytest.raises(DroverError, match="page: not a cursor of this list") as refused:
        HERE.read(cursor)
    assert refused.value.reason is Reason.INVALID_ARGUMENT


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_garbled_cursors_are_refused(text: str) -> None:
    with pytest.raises(DroverError, match="page: not a cursor"):
        HERE.read(text)


@pytest.mark.parametrize("length", range(1, 4))
def test_a_cursor_that_was_cut_or_altered_anywhere_is_refused(length: int) -> None:
    cursor = HERE.write(Position(7, "x" * length))
    altered = {cursor[:end] for end in range(len(cursor))} | {f"{cursor}=", f"{cursor}A"}
    for index, letter in enumerate(cursor):
        others = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") - {letter}
        altered |= {cursor[:index] + other + cursor[index + 1 :] for other in others}
    for changed in altered:
        with pytest.raises(DroverError, match="page: "):
            HERE.read(changed)


def test_the_last_page_leads_nowhere() -> None:
    assert cut([3, 2, 1], 3) == ([3, 2, 1], None)
    assert cut([], 3) == ([], None)
    assert cut([4, 3, 2, 1], 3) == ([4, 3, 2], 2)


def test_time_bounds_round_towards_what_they_include() -> None:
    time = Timestamp(seconds=1, nanos=1_500)
    assert bound(time, "created_at[gte]", lower=True) == 1_000_002
    assert bound(time, "created_at[lte]", lower=False) == 1_000_001


@pytest.mark.parametrize("time", [Timestamp(seconds=2**62), Timestamp(nanos=-1)])
def test_a_time_that_does_not_exist_is_refused_by_its_key(time: Timestamp) -> None:
    with pytest.raises(DroverError, match=r"created_at\[gte\]: must be a time"):
        bound(time, "created_at[gte]", lower=True)
