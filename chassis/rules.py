"""Checks messages against the limits written beside their fields (`drover.api.v1.rules`).

The rules of a message type are compiled once, into closures that touch only what has rules. An
unset field that tracks presence is checked for `required` alone; without presence the zero value
is checked like any other, as protovalidate does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from chassis import limits
from chassis.errors import DroverError, Reason
from drover.api.v1 import annotations_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from google.protobuf.descriptor import Descriptor, OneofDescriptor
    from google.protobuf.descriptor import FieldDescriptor as Field
    from google.protobuf.message import Message

    from chassis.limits import Check, Violation

_REQUIRED = "a value is required"
_SHOWN_KEY = 64
_compiled: dict[Descriptor, _Rules] = {}


def check(message: Message) -> None:
    """Raises INVALID_ARGUMENT naming the path of the first broken rule: `events.0.content: …`.

    Segments are JSON keys (field, query or header names), indexes and map keys. A union's variant
    has none, since JSON writes its fields into the enclosing object.
    """
    # Generated stubs disagree on which of two equal classes a descriptor is.
    violation = _compile(cast("Descriptor", message.DESCRIPTOR))(message)
    if violation is not None:
        path, text = violation
        raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}" if path else text)


class _Rules:
    """The compiled rules of one message type."""

    def __init__(self) -> None:
        self.steps: list[Check] = []
        self.complete = False

    def __call__(self, message: Message) -> Violation | None:
        for step in self.steps:
            if (violation := step(message)) is not None:
                return violation
        return None


def _compile(descriptor: Descriptor) -> _Rules:
    if (known := _compiled.get(descriptor)) is not None:
        return known
    rules = _compiled[descriptor] = _Rules()  # before its fields: types may be recursive
    unions = [oneof for oneof in descriptor.oneofs if not _is_optional(oneof)]
    steps = [_field(field) for field in descriptor.fields if field.containing_oneof not in unions]
    rules.steps += [step for step in (*steps, *map(_oneof, unions)) if step is not None]
    rules.complete = True
    return rules


def _is_optional(oneof: OneofDescriptor) -> bool:
    """Whether protobuf made the oneof to say that a field is `optional`."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _field(field: Field) -> Check | None:
    name, key = field.name, _key(field)
    rules = field.GetOptions().Extensions[api.rules]
    check_value = _value(field, rules)
    required = rules.required and not field.is_repeated  # lists and maps: at least one
    presence = field.has_presence
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
    if not options.required:
        unset = None
    elif options.union:
        unset = ("type", _REQUIRED)
    else:
        unset = ("", f"one of {', '.join(map(_key, oneof.fields))} is required")

    def step(message: Message) -> Violation | None:
        if (chosen := message.WhichOneof(name)) is None:
            return unset
        if (variant := variants.get(chosen)) is None:
            return None
        return _below(variant[0], variant[1](getattr(message, chosen)))

    return step if variants or unset else None


def _key(field: Field) -> str:
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
        size = limits.size(len, least, limits.given(rules.map, "max_pairs"), "pair")
        keys = _each(_keys, _one(entry.fields_by_name["key"], rules.map.keys))
        values = _each(_pairs, _one(entry.fields_by_name["value"], rules.map.values))
        return limits.every(size, keys, values)
    least = rules.repeated.min_items or least
    size = limits.size(len, least, limits.given(rules.repeated, "max_items"), "item")
    unique = limits.unique if rules.repeated.unique else None
    return limits.every(size, unique, _each(enumerate, _one(field, rules.repeated.items)))


def _one(field: Field, rules: api.FieldRules) -> Check | None:
    """The check of one value of the field's type."""
    if field.message_type is not None:
        nested = _compile(field.message_type)
        return nested if nested.steps or not nested.complete else None
    known = None
    if field.enum_type is not None and rules.enum.defined_only:
        known = limits.known(field.enum_type.values_by_number)
    return limits.every(known, limits.string(rules.string), limits.integer(rules.int64))


def _each(
    entries: Callable[[Any], Iterable[tuple[object, object]]], check_value: Check | None
) -> Check | None:
    """The check of every element; `entries` pairs each with its path segment."""
    if check_value is None:
        return None

    def run(values: object) -> Violation | None:
        for segment, value in entries(values):
            if (violation := check_value(value)) is not None:
                return _below(str(segment)[:_SHOWN_KEY], violation)
        return None

    return run


def _keys(pairs: Mapping[Any, object]) -> Iterator[tuple[object, object]]:
    return zip(pairs, pairs, strict=True)


def _pairs(pairs: Mapping[Any, object]) -> Iterable[tuple[object, object]]:
    return pairs.items()
