"""Checks messages against the limits written beside their fields (`drover.api.v1.rules`).

The rules of a message type are compiled once, into closures that touch only what has rules. An
unset field that tracks presence is checked for `required` alone; without presence the zero value
is checked like any other, as protovalidate does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, OneofDescriptor
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from chassis.errors import DroverError, Reason
from drover.api.v1 import annotations_pb2 as api

Violation = tuple[str, str]  # the path below the value checked, and what is wrong there
Check = Callable[[Any], Violation | None]
Test = tuple[Callable[[Any], object], str]  # what must hold, and what to say when it does not

_REQUIRED = "a value is required"
_ID = re.compile(r"(^|_)ids?$")
_compiled: dict[Descriptor, _Rules] = {}


def check(message: Message) -> None:
    """Raises INVALID_ARGUMENT naming the path of the first broken rule: `events.0.content: …`.

    Segments are JSON keys (field, query or header names), indexes and map keys. A union's variant
    has none, nor have a metadata patch's parts: JSON writes them into the enclosing object.
    """
    if (violation := _compile(message.DESCRIPTOR)(message)) is not None:
        raise DroverError(Reason.INVALID_ARGUMENT, ": ".join(filter(None, violation)))


class _Rules:
    """The compiled rules of one message type."""

    def __init__(self) -> None:
        self.complete, self.steps = False, list[Check]()

    def __call__(self, message: Message) -> Violation | None:
        for step in self.steps:
            if (violation := step(message)) is not None:
                return violation
        return None


def _compile(descriptor: Any) -> _Rules:  # noqa: ANN401  # the stubs have two names for its type
    if (known := _compiled.get(descriptor)) is not None:
        return known
    rules = _compiled[descriptor] = _Rules()  # before its fields: types may be recursive
    # Protobuf says that a field is `optional` by a oneof of its own.
    unions = [oneof for oneof in descriptor.oneofs if oneof.name != f"_{oneof.fields[0].name}"]
    steps = [_field(field) for field in descriptor.fields if field.containing_oneof not in unions]
    rules.steps += [step for step in (*steps, *map(_oneof, unions)) if step is not None]
    rules.complete = True
    return rules


def _field(field: Field) -> Check | None:
    name, key, presence = field.name, _key(field), field.has_presence
    rules = field.GetOptions().Extensions[api.rules]
    check_value = _value(field, rules)
    required = rules.required and not field.is_repeated  # lists and maps: at least one
    if check_value is None and not required:
        return None

    def step(message: Message) -> Violation | None:
        if presence and not message.HasField(name):
            return (key, _REQUIRED) if required else None
        value = getattr(message, name)
        if required and not presence and not value:
            return key, _REQUIRED
        return None if check_value is None else _below(key, check_value(value))

    return step


def _oneof(oneof: OneofDescriptor) -> Check | None:
    name, options = oneof.name, oneof.GetOptions().Extensions[api.oneof]
    variants: dict[str, tuple[str, Check]] = {}
    for field in oneof.fields:
        check_value = _value(field, field.GetOptions().Extensions[api.rules])
        if check_value is not None:
            variants[field.name] = ("" if options.union else _key(field)), check_value
    choice = f"one of {', '.join(map(_key, oneof.fields))} is required"
    unset = (("type", _REQUIRED) if options.union else ("", choice)) if options.required else None

    def step(message: Message) -> Violation | None:
        if (chosen := message.WhichOneof(name)) is None:
            return unset
        if (variant := variants.get(chosen)) is None:
            return None
        return _below(variant[0], variant[1](getattr(message, chosen)))

    return step if variants or unset else None


def _key(field: Field) -> str:
    if field.full_name.startswith("drover.api.v1.MetadataPatch."):
        return ""
    options = field.GetOptions().Extensions[api.json]
    return options.query or options.header or field.name


def _below(key: str, violation: Violation | None) -> Violation | None:
    if violation is None or not key:
        return violation
    return f"{key}.{violation[0]}".removesuffix("."), violation[1]


def _value(field: Field, rules: api.FieldRules) -> Check | None:
    """The check of a field's value, whatever its cardinality."""
    if not field.is_repeated:
        return _one(field, rules)
    least, entry = int(rules.required), field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        parts = [(lambda pairs: zip(pairs, pairs, strict=True), _one(key, rules.map.keys))]
        parts += [(lambda pairs: pairs.items(), _one(value, rules.map.values))]
        return _all(_size(len, least, rules.map, "max_pairs", "pair"), parts)
    tests = _size(len, rules.repeated.min_items or least, rules.repeated, "max_items", "item")
    if rules.repeated.unique:
        tests.append((lambda items: len(set(items)) == len(items), "no item may be there twice"))
    return _all(tests, [(enumerate, _one(field, rules.repeated.items))])


def _one(field: Field, rules: api.FieldRules) -> Check | None:
    """The check of one value of the field's type."""
    if field.message_type is not None:
        if rules.unchecked:
            return None
        nested = _compile(field.message_type)
        return nested if nested.steps or not nested.complete else None
    tests = _string(rules.string)
    if field.type == Field.TYPE_STRING and _ID.search(field.name):
        # PostgreSQL takes none as a text, be it only to find that there is no such id.
        tests.append((lambda text: "\0" not in text, "must not contain the character U+0000"))
    if rules.int64.HasField("gte"):
        tests.append((rules.int64.gte.__le__, f"must be at least {rules.int64.gte}"))
    if rules.int64.HasField("lte"):
        tests.append((rules.int64.lte.__ge__, f"must be at most {rules.int64.lte}"))
    if field.enum_type is not None and rules.enum.defined_only:
        tests.append((field.enum_type.values_by_number.__contains__, "the value is not known"))
    return _all(tests, [])


def _all(
    tests: list[Test], parts: Iterable[tuple[Callable[[Any], Iterable[Any]], Check | None]]
) -> Check | None:
    """The tests of a value and the checks of its parts, each part named by its path segment."""
    present = [(split, check_part) for split, check_part in parts if check_part is not None]

    def run(value: object) -> Violation | None:
        for holds, text in tests:
            if not holds(value):
                return "", text
        for split, check_part in present:
            for segment, part in split(value):
                if (violation := check_part(part)) is not None:
                    return _below(str(segment)[:64], violation)  # of a key
        return None

    return run if tests or present else None


def _size(
    measure: Callable[[Any], int], low: int, limits: Message, most: str, noun: str
) -> list[Test]:
    tests: list[Test] = []
    if low:
        are = " is" if low == 1 else "s are"
        tests.append((lambda value: measure(value) >= low, f"at least {low} {noun}{are} required"))
    if limits.HasField(most):
        high = getattr(limits, most)
        are = " is" if high == 1 else "s are"
        tests.append((lambda value: measure(value) <= high, f"at most {high} {noun}{are} allowed"))
    return tests


def _string(limits: api.StringRules) -> list[Test]:
    tests = _size(len, limits.min_len, limits, "max_len", "character")
    tests += _size(lambda text: len(text.encode()), 0, limits, "max_bytes", "byte")
    if limits.pattern:
        # RE2's reading: `$` is the very end, \d and \w are ASCII.
        exact = re.sub(r"(?<!\\)\$$", r"\\Z", limits.pattern)
        told = limits.message or f"must match {limits.pattern}"
        tests.append((re.compile(exact, re.ASCII).search, told))
    if allowed := list(getattr(limits, "in")):
        tests.append((frozenset(allowed).__contains__, f"must be one of {', '.join(allowed)}"))
    if limits.json_object:
        tests.append((_is_json_object, "must be a JSON object"))
    return tests


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
