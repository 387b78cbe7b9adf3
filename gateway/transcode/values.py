"""Setters of single values: one function per field, from a JSON value or from a query's text.

A setter takes the message and the value, checks the value's type and range, and raises `Refused`.
Limits of length, pattern and the like are the rules', checked by the service that is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gateway.transcode import timestamps
from gateway.transcode.refusal import Refused, one_of
from gateway.transcode.shape import ContractError, Kind

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from gateway.transcode.shape import FieldShape

Setter = Callable[["Message", Any], None]
Read = Callable[[Any], Any]  # a JSON value or a text to what protobuf takes; raises Refused

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)
_EXACT_FLOAT = 2**53


def json_reader(field: FieldShape) -> Read:
    """Reads one scalar JSON value for a field (one item, for lists and maps)."""
    match field.kind:
        case Kind.STRING:
            return _tag_reader(field.tags) if field.tags else _string
        case Kind.BOOL:
            return _bool
        case Kind.INT:
            return _integer_reader(*field.range)
        case Kind.DOUBLE:
            return _double
        case Kind.ENUM:
            return _enum_reader(field.texts)
        case _:
            msg = f"{field.name}: not a scalar"
            raise ContractError(msg)


def text_reader(field: FieldShape) -> Read:
    """Reads one value of a path segment, query parameter or header."""
    match field.kind:
        case Kind.BOOL:
            return _bool_text
        case Kind.INT:
            return _integer_text_reader(_integer_reader(*field.range))
        case Kind.STRING | Kind.ENUM:
            return json_reader(field)
        case _:
            msg = f"{field.name}: no text form"
            raise ContractError(msg)


def text_setter(field: FieldShape) -> Setter:
    """Sets a field that is not a list from a text."""
    if field.kind is Kind.TIMESTAMP and not field.repeated:
        return timestamp_setter(field.name)
    if field.repeated or field.map:
        msg = f"{field.name}: a list has no text form"
        raise ContractError(msg)
    return scalar_setter(field.name, text_reader(field))


def scalar_setter(name: str, read: Read) -> Setter:
    """Sets a scalar field to what `read` makes of the value."""

    def put(message: Message, value: object) -> None:
        setattr(message, name, read(value))

    return put


def list_setter(name: str, read: Read) -> Setter:
    """Fills a repeated scalar field from an array."""

    def put(message: Message, value: object) -> None:
        if type(value) is not list:
            raise Refused("must be an array")
        items = getattr(message, name)
        for index, item in enumerate(value):
            try:
                items.append(read(item))
            except Refused as refused:
                raise refused.under(str(index)) from None

    return put


def map_setter(name: str, read: Read) -> Setter:
    """Fills a map of scalars from an object."""

    def put(message: Message, value: object) -> None:
        if type(value) is not dict:
            raise Refused("must be an object")
        pairs = getattr(message, name)
        for key, item in value.items():
            try:
                pairs[key] = read(item)
            except Refused as refused:
                raise refused.under(key) from None

    return put


def metadata_patch_setter(name: str) -> Setter:
    """Fills a `MetadataPatch`: strings set a key, null removes it."""

    def put(message: Message, value: object) -> None:
        if type(value) is not dict:
            raise Refused("must be an object")
        patch = getattr(message, name)
        patch.SetInParent()
        for key, item in value.items():
            if item is None:
                patch.remove.append(key)
            elif type(item) is str:
                patch.set[key] = item
            else:
                raise Refused("must be a string or null").under(key)

    return put


def timestamp_setter(name: str) -> Setter:
    """Sets a timestamp from RFC 3339 text."""

    def put(message: Message, value: object) -> None:
        timestamps.read(_string(value), getattr(message, name))

    return put


def _string(value: object) -> str:
    if type(value) is not str:
        raise Refused("must be a string")
    return value


def _bool(value: object) -> bool:
    if type(value) is not bool:
        raise Refused("must be true or false")
    return value


def _bool_text(value: str) -> bool:
    if value not in {"true", "false"}:
        raise Refused("must be true or false")
    return value == "true"


def _double(value: object) -> float:
    if type(value) is not float and type(value) is not int:
        raise Refused("must be a number")
    return float(value)


def _integer_reader(low: int, high: int) -> Read:
    outside = f"must be between {low} and {high}"

    def read(value: object) -> int:
        if type(value) is float and value.is_integer() and abs(value) < _EXACT_FLOAT:
            value = int(value)  # 1.0 is an integer in JSON Schema too
        if type(value) is not int:
            raise Refused("must be an integer")
        if not low <= value <= high:
            raise Refused(outside)
        return value

    return read


def _integer_text_reader(check: Read) -> Read:
    def read(value: str) -> object:
        if _INTEGER.fullmatch(value) is None:
            raise Refused("must be an integer")
        return check(int(value))

    return read


def _enum_reader(texts: dict[int, str]) -> Read:
    numbers = {text: number for number, text in texts.items()}

    def read(value: object) -> int:
        number = numbers.get(value) if type(value) is str else None
        if number is None:
            raise one_of(numbers)
        return number

    return read


def _tag_reader(tags: tuple[str, ...]) -> Read:
    known = frozenset(tags)

    def read(value: object) -> str:
        if type(value) is not str or value not in known:
            raise Refused("must be the type of an event that clients see")
        return value

    return read
