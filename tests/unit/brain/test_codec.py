"""The codec: what is written comes back, and nothing else does."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import UserMessage
from services.brain.domain import events
from services.brain.domain.codec import DERIVED, Codec, CodecError, shape_of


class Colour(Enum):
    RED = "red"
    GREEN = ("green", 2)


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    label: str
    more: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Cached:
    kept: int
    made: bytes = field(default=b"", metadata=DERIVED)
    listed: list[int] = field(default_factory=list, metadata=DERIVED)


class Heap:
    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def dump(self) -> tuple[bytearray, int]:
        return self.data, len(self.data)

    @classmethod
    def load(cls, dumped: tuple[bytearray, int]) -> Heap:
        data, length = dumped
        assert isinstance(data, bytearray)
        assert len(data) == length
        return cls(data)


CODEC = Codec((Colour, Level, Point, Cached, Heap))

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.sampled_from([*Colour, *Level]),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner).map(deque)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.builds(Point, st.floats(allow_nan=False), st.text(), st.lists(inner))
    ),
    max_leaves=20,
)


def written(value: Any) -> bytes:
    return b"".join(CODEC.encode(value))


def types_in(value: Any) -> Any:
    """What equality does not tell apart: 1 and True, a member and its value."""
    match value:
        case dict():
            return type(value), [(types_in(key), types_in(one)) for key, one in value.items()]
        case list() | tuple() | deque():
            return type(value), [types_in(one) for one in value]
        case Point():
            return Point, types_in(value.more)
        case _:
            return type(value)


@given(PLAIN)
def test_value_comes_back_as_it_was_written(value: Any) -> None:
    again = CODEC.decode(written(value))
    assert again == value
    assert types_in(again) == types_in(value)
    assert written(again) == written(value)


@settings(max_examples=50)
@given(PLAIN, st.data())
def test_damaged_bytes_are_refused_or_give_another_value_but_nothing_else_is_raised(
    value: Any, data: st.DataObject
) -> None:
    good = written(value)
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(CodecError):
        CODEC.decode(good[:cut])
    with pytest.raises(CodecError):
        CODEC.decode(good + b"N")
    spoilt = bytearray(good)
    spoilt[cut] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CodecError):
        CODEC.decode(spoilt)


def test_lone_surrogates_and_long_integers_come_back() -> None:
    for value in ("\ud800", 1 << 200, -(1 << 200), -1, 127, 128, -128, -129, 0):
        assert CODEC.decode(written(value)) == value


def test_message_of_the_contract_comes_back_with_fields_that_nobody_knows() -> None:
    event = Event(id="sevt_1", user_message=UserMessage(content=[events.text("hello")]))
    event.MergeFromString(b"\xba\x3e\x03new")
    again = CODEC.decode(written([event]))
    assert again == [event]
    assert again[0].SerializeToString() == event.SerializeToString()


def test_derived_field_is_left_out_and_has_its_default_again() -> None:
    again = CODEC.decode(written(Cached(3, b"made", [1])))
    assert again == Cached(3)
    assert "made" not in CODEC.schema


def test_class_with_a_dump_of_its_own_is_made_by_its_load() -> None:
    again = CODEC.decode(written(Heap(b"abc")))
    assert again.data == b"abc"


def test_long_bytes_are_not_copied_before_they_are_joined() -> None:
    heap = Heap(bytes(1 << 20))
    assert any(piece is heap.data for piece in CODEC.encode(heap))


@pytest.mark.parametrize("value", [{1, 2}, object(), type("Odd", (int,), {})(3), Codec])
def test_value_that_nobody_has_named_is_not_written(value: object) -> None:
    with pytest.raises(CodecError, match="not among the codec's classes"):
        written([value])


def test_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(CodecError, match="circle"):
        written(circle)


def test_message_from_elsewhere_is_not_made() -> None:
    name = b"google.protobuf.Timestamp"
    forged = b"p" + len(name).to_bytes(4, "little") + name + bytes(4)
    with pytest.raises(CodecError, match="not in the contract"):
        CODEC.decode(forged)


def test_schema_tells_fields_their_types_members_and_what_is_dumped() -> None:
    assert shape_of(Point) == [
        "Point: dataclass",
        "Point.x: float",
        "Point.label: str",
        "Point.more: list[Any]",
    ]
    assert "Colour.GREEN = ('green', 2)" in CODEC.schema
    assert "Heap: tuple[bytearray, int]" in CODEC.schema
