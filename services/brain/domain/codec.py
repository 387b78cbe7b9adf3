"""Values of the domain as bytes and back: what checkpoints are written in.

A value is a tag and what belongs to it. Long bytes are taken as they are: a conversation of
megabytes costs a copy, and not a walk. Reading makes nothing but plain values, protobuf messages of
the contract and the classes that the codec was given, and calls none of their constructors.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Put = Callable[[bytes | bytearray], None]

DERIVED: Final[Mapping[str, bool]] = {"derived": True}
"""Metadata of a dataclass's field that is made again when it is needed: it is not written."""

_CONTRACT: Final = "drover."
_NUMBER: Final = struct.Struct("<I")
_FLOAT: Final = struct.Struct("<d")
_DAMAGE: Final = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
    struct.error,
    DecodeError,
)


class CodecError(ValueError):
    """Not a value that can be written, or not bytes that were."""


class Codec:
    """Writes and reads values that may hold instances of `classes`.

    Each of those is a dataclass, an `Enum`, or has `dump()`, whose answer is written, and a class
    method `load(dumped)`. They are named by their place among `classes`, and fields by theirs: what
    was written can only be read with the same `schema`.
    """

    def __init__(self, classes: Sequence[type[Any]]) -> None:
        self._classes = classes
        self._writers: dict[type[Any], Callable[[Any, Put], None]] = {
            type(None): lambda _, put: put(b"N"),
            bool: lambda value, put: put(b"T" if value else b"F"),
            int: _put_int,
            float: lambda value, put: put(b"f" + _FLOAT.pack(value)),
            str: lambda value, put: _put_bytes(b"s", value.encode("utf-8", "surrogatepass"), put),
            bytes: partial(_put_bytes, b"b"),
            bytearray: partial(_put_bytes, b"B"),
            list: partial(self._put_items, b"l"),
            tuple: partial(self._put_items, b"t"),
            deque: partial(self._put_items, b"q"),
            dict: self._put_dict,
        }
        self._readers: dict[int, Callable[[_Cursor], Any]] = {
            ord("N"): lambda _: None,
            ord("T"): lambda _: True,
            ord("F"): lambda _: False,
            ord("i"): lambda at: int.from_bytes(at.bytes(), "little", signed=True),
            ord("f"): lambda at: _FLOAT.unpack(at.take(_FLOAT.size))[0],
            ord("s"): lambda at: str(at.bytes(), "utf-8", "surrogatepass"),
            ord("b"): lambda at: bytes(at.bytes()),
            ord("B"): lambda at: bytearray(at.bytes()),
            ord("l"): self._items,
            ord("t"): lambda at: tuple(self._items(at)),
            ord("q"): lambda at: deque(self._items(at)),
            ord("m"): self._dict,
            ord("p"): _message,
            ord("c"): lambda at: self._makers[at.number()](at),
        }
        self._makers: list[Callable[[_Cursor], Any]] = []
        for number, cls in enumerate(classes):
            write, make = self._shape(cls)
            head = b"c" + _NUMBER.pack(number)
            self._writers[cls] = partial(_headed, head, write)
            self._makers.append(make)

    @property
    def schema(self) -> str:
        """What the classes are made of, as text."""
        return "\n".join(line for cls in self._classes for line in shape_of(cls))

    def encode(self, value: Any) -> list[bytes | bytearray]:  # noqa: ANN401
        """The value in pieces to be joined before anything changes. Raises `CodecError`."""
        pieces: list[bytes | bytearray] = []
        try:
            self._put(value, pieces.append)
        except RecursionError as error:
            raise CodecError("the value goes round in a circle") from error
        except struct.error as error:
            raise CodecError("something in the value is too long") from error
        return pieces

    def decode(self, data: bytes | memoryview) -> Any:  # noqa: ANN401
        """The value that was written. Raises `CodecError` for anything else."""
        try:
            cursor = _Cursor(memoryview(data))
            value = self._get(cursor)
        except _DAMAGE as error:
            raise CodecError(f"{type(error).__name__}: {error}") from error
        if cursor.at != len(data):
            raise CodecError("something follows the value")
        return value

    def _put(self, value: Any, put: Put) -> None:  # noqa: ANN401
        write = self._writers.get(type(value))
        if write is not None:
            write(value, put)
        elif isinstance(value, Message):
            name = value.DESCRIPTOR.full_name
            _put_bytes(b"p", name.encode(), put)
            _put_bytes(b"", value.SerializeToString(deterministic=True), put)
        else:
            raise CodecError(f"{type(value).__qualname__} is not among the codec's classes")

    def _get(self, at: _Cursor) -> Any:  # noqa: ANN401
        return self._readers[at.tag()](at)

    def _put_items(self, tag: bytes, items: Sequence[Any], put: Put) -> None:
        put(tag + _NUMBER.pack(len(items)))
        for item in items:
            self._put(item, put)

    def _items(self, at: _Cursor) -> list[Any]:
        return [self._get(at) for _ in range(at.number())]

    def _put_dict(self, items: Mapping[Any, Any], put: Put) -> None:
        put(b"m" + _NUMBER.pack(len(items)))
        for key, value in items.items():
            self._put(key, put)
            self._put(value, put)

    def _dict(self, at: _Cursor) -> dict[Any, Any]:
        return {self._get(at): self._get(at) for _ in range(at.number())}

    def _shape(self, cls: type[Any]) -> tuple[Callable[[Any, Put], None], Callable[[_Cursor], Any]]:
        if issubclass(cls, Enum):
            return lambda value, put: self._put(value.value, put), lambda at: cls(self._get(at))
        if is_dataclass(cls):
            kept, derived = _split(cls)
            return partial(self._put_fields, kept), partial(self._make, cls, kept, derived)
        return lambda value, put: self._put(value.dump(), put), lambda at: cls.load(self._get(at))

    def _put_fields(self, names: Sequence[str], value: Any, put: Put) -> None:  # noqa: ANN401
        for name in names:
            self._put(getattr(value, name), put)

    def _make(
        self, cls: type[Any], kept: Sequence[str], derived: Sequence[Field[Any]], at: _Cursor
    ) -> Any:  # noqa: ANN401
        made = object.__new__(cls)
        for name in kept:
            object.__setattr__(made, name, self._get(at))
        for one in derived:
            object.__setattr__(made, one.name, _default(one))
        return made


def shape_of(cls: type[Any]) -> list[str]:
    """A class as the codec writes it: a line for each of its fields or members."""
    name = cls.__qualname__
    if issubclass(cls, Enum):
        return [f"{name}: enum", *(f"{name}.{one.name} = {one.value!r}" for one in cls)]
    if is_dataclass(cls):
        return [
            f"{name}: dataclass",
            *(
                f"{name}.{one.name}: {one.type}"
                for one in fields(cls)
                if not one.metadata.get("derived")
            ),
        ]
    return [f"{name}: {cls.dump.__annotations__['return']}"]


def _split(cls: type[Any]) -> tuple[list[str], list[Field[Any]]]:
    derived = [one for one in fields(cls) if one.metadata.get("derived")]
    kept = [one.name for one in fields(cls) if not one.metadata.get("derived")]
    return kept, derived


def _default(of: Field[Any]) -> Any:  # noqa: ANN401
    return of.default if of.default_factory is MISSING else of.default_factory()


def _headed(head: bytes, write: Callable[[Any, Put], None], value: Any, put: Put) -> None:  # noqa: ANN401
    put(head)
    write(value, put)


def _put_int(value: int, put: Put) -> None:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    _put_bytes(b"i", data, put)


def _put_bytes(tag: bytes, data: bytes | bytearray, put: Put) -> None:
    put(tag + _NUMBER.pack(len(data)))
    put(data)


def _message(at: _Cursor) -> Message:
    name = str(at.bytes(), "utf-8")
    if not name.startswith(_CONTRACT):
        raise CodecError(f"{name} is not in the contract")
    message = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))()
    message.ParseFromString(bytes(at.bytes()))
    return message


class _Cursor:
    """A place in bytes that are read from front to back."""

    __slots__ = ("_view", "at")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.at = 0

    def take(self, length: int) -> memoryview:
        """The next bytes, without a copy."""
        begin = self.at
        self.at += length
        if self.at > len(self._view):
            raise CodecError("cut off")
        return self._view[begin : self.at]

    def tag(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """The next number."""
        number: int = _NUMBER.unpack(self.take(_NUMBER.size))[0]
        return number

    def bytes(self) -> memoryview:
        """Bytes with their length before them."""
        return self.take(self.number())
