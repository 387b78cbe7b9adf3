"""Messages to JSON, compiled once per message type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from gateway.transcode import timestamps
from gateway.transcode.document import Json
from gateway.transcode.shape import ContractError, Kind

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from gateway.transcode.shape import FieldShape, MessageShape, Shapes

Members = dict[str, Json]
Step = Callable[["Message", Members], None]
Write = Callable[[Json], Json]


class Encoders:
    """Compiles encoders, each once."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self._known: dict[str, ObjectEncoder] = {}

    def of(self, descriptor: Descriptor) -> ObjectEncoder:
        """The encoder of a message type. Raises `ContractError` if JSON cannot hold it."""
        encoder = self._known.get(descriptor.full_name)
        if encoder is None:
            encoder = self._known[descriptor.full_name] = ObjectEncoder()
            encoder.compile(self.shapes.of(descriptor), self)
        return encoder


class ObjectEncoder:
    """Writes messages of one type as JSON objects."""

    def __init__(self) -> None:
        self._type = ""
        self._union = ""
        self._variants: dict[str, tuple[str, ObjectEncoder]] = {}
        self.steps: list[Step] = []

    def compile(self, shape: MessageShape, encoders: Encoders) -> None:
        """Takes the shape in."""
        self._type = shape.type
        self.steps = [_step(field, encoders) for field in shape.fields if not field.write_only]
        if shape.union is not None:
            self._union = shape.union.name
            self._variants = {
                variant.name: (variant.tag, encoders.of(variant.message))
                for variant in shape.union.variants
            }

    def members(self, message: Message) -> Members | None:
        """The object's members; `None` where HTTP shows nothing.

        That is where the message's variant is internal, unset, or of a later release.
        """
        if self._union:
            return self._united(message)
        out: Members = {"type": self._type} if self._type else {}
        for step in self.steps:
            step(message, out)
        return out

    def _united(self, message: Message) -> Members | None:
        name = message.WhichOneof(self._union)
        variant = self._variants.get(name)
        if variant is None:
            return None
        tag, encoder = variant
        out: Members = {"type": tag}
        for step in self.steps:
            step(message, out)
        chosen = getattr(message, name)
        for step in encoder.steps:
            step(chosen, out)
        return out

    def encode(self, message: Message) -> bytes | None:
        """JSON text without space; `None` where HTTP shows nothing."""
        members = self.members(message)
        return None if members is None else orjson.dumps(members)


def _step(field: FieldShape, encoders: Encoders) -> Step:
    """Writes one field into the members of its object."""
    name, omit = field.name, field.omit_unset
    write = _writer(field, encoders)
    if field.presence:
        return _optional_step(name, write, omit=omit, null_by=field.null_by)
    if write is _same and not omit:
        return lambda message, out: out.__setitem__(name, getattr(message, name))

    def step(message: Message, out: Members) -> None:
        value = getattr(message, name)
        if value or not omit:
            out[name] = write(value)

    return step


def _optional_step(name: str, write: Write, *, omit: bool, null_by: str) -> Step:
    def step(message: Message, out: Members) -> None:
        if message.HasField(name):
            out[name] = write(getattr(message, name))
        elif not omit or (null_by and getattr(message, null_by)):
            out[name] = None

    return step


def _writer(field: FieldShape, encoders: Encoders) -> Write:
    """Writes the value of a field, whatever its cardinality."""
    if field.kind is Kind.METADATA_PATCH:
        if field.repeated:
            msg = f"{field.name}: patches are single"
            raise ContractError(msg)
        return _metadata_patch
    one = _one(field, encoders)
    if field.map:
        return lambda value: {key: one(value[key]) for key in sorted(value)}
    if not field.repeated:
        return one
    if one is _same:
        return list
    if field.kind is Kind.MESSAGE:
        return lambda value: [item for item in map(one, value) if item is not None]
    return lambda value: [one(item) for item in value]


def _one(field: FieldShape, encoders: Encoders) -> Write:
    match field.kind:
        case Kind.ENUM:
            return field.texts.get
        case Kind.TIMESTAMP:
            return timestamps.write
        case Kind.OPAQUE:
            return _opaque
        case Kind.MESSAGE if field.message is not None:
            return encoders.of(field.message).members
        case _:
            return _same


def _same(value: Json) -> Json:
    return value


def _opaque(text: str) -> orjson.Fragment | None:
    return orjson.Fragment(text) if text else None


def _metadata_patch(patch: Json) -> Members:
    return {**patch.set, **dict.fromkeys(patch.remove)}
