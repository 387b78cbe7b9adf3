"""What the contract says of a message's JSON, read once from descriptors and their options.

Decoder, encoder and OpenAPI description are all compiled from these shapes, so that no option is
interpreted twice. The meaning of every option is in `drover/api/v1/annotations.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from google.api import field_behavior_pb2  # type: ignore[import-untyped]
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor

from drover.api.v1 import annotations_pb2 as api

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, OneofDescriptor

_TIMESTAMP = "google.protobuf.Timestamp"
_FIELD_MASK = "google.protobuf.FieldMask"
_METADATA_PATCH = "drover.api.v1.MetadataPatch"


class ContractError(Exception):
    """The contract asks for something that the gateway cannot transcode. Raised at start only."""


class Kind(Enum):
    """The kinds of JSON value that a field may hold."""

    STRING = auto()
    BOOL = auto()
    INT = auto()
    DOUBLE = auto()
    ENUM = auto()
    TIMESTAMP = auto()
    OPAQUE = auto()
    MESSAGE = auto()
    METADATA_PATCH = auto()


_SCALARS = {
    FieldDescriptor.TYPE_STRING: Kind.STRING,
    FieldDescriptor.TYPE_BOOL: Kind.BOOL,
    FieldDescriptor.TYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.TYPE_FLOAT: Kind.DOUBLE,
    FieldDescriptor.TYPE_ENUM: Kind.ENUM,
}
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field as the HTTP API shows it.

    `name` is its name in the message; `query` and `header` are where it travels if not in JSON.
    `null_by` names the bool beside it that has it written as null though unset. `range` are the
    bounds of an integer's type, `texts` the wire text of each enum number and `tags` the only
    values that a `tags_of` string takes.
    """

    name: str
    kind: Kind
    repeated: bool
    map: bool
    presence: bool
    read_only: bool
    write_only: bool
    omit_unset: bool
    null_by: str
    not_null: bool
    query: str
    header: str
    range: tuple[int, int]
    texts: dict[int, str]
    tags: tuple[str, ...]
    message: Descriptor | None
    rules: api.FieldRules


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant of a tagged union. `accepted` says whether HTTP callers may send it."""

    tag: str
    name: str
    message: Descriptor
    accepted: bool


@dataclass(frozen=True, slots=True)
class Union:
    """A oneof whose chosen variant's fields lie in the enclosing object, beside `type`."""

    name: str
    required: bool
    variants: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class MessageShape:
    """One message as the HTTP API shows it: without internal fields.

    `type` is the constant value of its `type` key, `shorthand` the path of the field that a bare
    string fills, `mask` the field that takes the names of the keys that were present.
    """

    descriptor: Descriptor
    fields: tuple[FieldShape, ...]
    union: Union | None
    type: str
    type_required: bool
    shorthand: tuple[str, ...]
    mask: str

    def field(self, name: str) -> FieldShape:
        """The field of that name. Raises `ContractError` if HTTP has none."""
        for field in self.fields:
            if field.name == name:
                return field
        msg = f"{self.descriptor.full_name} shows no field {name}"
        raise ContractError(msg)


class Shapes:
    """Reads shapes, each once."""

    def __init__(self) -> None:
        self._known: dict[str, MessageShape] = {}

    def of(self, descriptor: Descriptor) -> MessageShape:
        """The shape of a message type. Raises `ContractError` if it has none in JSON."""
        shape = self._known.get(descriptor.full_name)
        if shape is None:
            shape = self._known[descriptor.full_name] = _read(descriptor)
        return shape

    def shorthand(self, shape: MessageShape) -> FieldShape:
        """The field that a bare string fills. Raises `ContractError` if there is none."""
        *steps, last = shape.shorthand
        for step in steps:
            variants = shape.union.variants if shape.union else ()
            inner = [variant.message for variant in variants if variant.name == step]
            message = inner[0] if inner else shape.field(step).message
            if message is None:
                msg = f"{shape.descriptor.full_name}.{step} is no message"
                raise ContractError(msg)
            shape = self.of(message)
        return shape.field(last)


def _read(descriptor: Descriptor) -> MessageShape:
    fields: list[FieldShape] = []
    unions: list[Union] = []
    mask = ""
    in_union: set[str] = set()
    for oneof in descriptor.oneofs:
        if _is_optional(oneof):
            continue
        if not oneof.GetOptions().Extensions[api.oneof].union:
            msg = f"{descriptor.full_name}.{oneof.name}: a oneof needs a union in JSON"
            raise ContractError(msg)
        unions.append(_union(oneof))
        in_union.update(field.name for field in oneof.fields)
    for field in descriptor.fields:
        json = field.GetOptions().Extensions[api.json]
        if json.presence_mask:
            mask = field.name
        elif field.name not in in_union and not json.internal:
            fields.append(_field(field, json))
    if len(unions) > 1:
        msg = f"{descriptor.full_name} has two unions"
        raise ContractError(msg)
    options = descriptor.GetOptions().Extensions[api.message]
    return MessageShape(
        descriptor=descriptor,
        fields=tuple(fields),
        union=unions[0] if unions else None,
        type=options.type,
        type_required=options.type_required,
        shorthand=tuple(filter(None, options.shorthand.split("."))),
        mask=mask,
    )


def _is_optional(oneof: OneofDescriptor) -> bool:
    """Whether protobuf made the oneof to say that a field is `optional`."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _union(oneof: OneofDescriptor) -> Union:
    marked = any(field.GetOptions().Extensions[api.json].client for field in oneof.fields)
    variants = []
    for field in oneof.fields:
        options = field.GetOptions().Extensions[api.json]
        if options.internal:
            continue
        if not options.tag or field.message_type is None:
            msg = f"{field.full_name}: a union's variant is a message with a tag"
            raise ContractError(msg)
        variants.append(
            Variant(options.tag, field.name, field.message_type, options.client or not marked)
        )
    required = oneof.GetOptions().Extensions[api.oneof].required
    return Union(oneof.name, required, tuple(variants))


def _field(field: FieldDescriptor, options: api.FieldJson) -> FieldShape:
    behavior = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    entry = field.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    value = field
    if entry is not None and is_map:
        value = entry.fields_by_name["value"]
        if entry.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
            msg = f"{field.full_name}: keys of JSON objects are strings"
            raise ContractError(msg)
    kind = _kind(value, options)
    return FieldShape(
        name=field.name,
        kind=kind,
        repeated=field.is_repeated and not is_map,
        map=is_map,
        presence=field.has_presence,
        read_only=field_behavior_pb2.OUTPUT_ONLY in behavior,
        write_only=field_behavior_pb2.INPUT_ONLY in behavior,
        omit_unset=options.omit_unset,
        null_by=options.null_by,
        not_null=options.not_null,
        query=options.query,
        header=options.header.lower(),
        range=_RANGES.get(value.cpp_type, (0, 0)),
        texts={} if value.enum_type is None else _texts(value.enum_type),
        tags=_tags(field, options.tags_of) if options.tags_of else (),
        message=value.message_type if kind is Kind.MESSAGE else None,
        rules=field.GetOptions().Extensions[api.rules],
    )


def _kind(field: FieldDescriptor, options: api.FieldJson) -> Kind:
    if options.opaque:
        return Kind.OPAQUE
    if field.type in _SCALARS:
        return _SCALARS[field.type]
    if field.cpp_type in _RANGES:
        return Kind.INT
    if field.message_type is None or field.message_type.full_name == _FIELD_MASK:
        msg = f"{field.full_name}: no JSON form for this type"
        raise ContractError(msg)
    known = {_TIMESTAMP: Kind.TIMESTAMP, _METADATA_PATCH: Kind.METADATA_PATCH}
    return known.get(field.message_type.full_name, Kind.MESSAGE)


def _texts(enum: EnumDescriptor) -> dict[int, str]:
    """Wire text by number, without the zero value, which means unset."""
    prefix = "".join(f"_{c}" if c.isupper() else c.upper() for c in enum.name)[1:] + "_"
    return {
        value.number: value.GetOptions().Extensions[api.wire]
        or value.name.removeprefix(prefix).lower()
        for value in enum.values
        if value.number
    }


def _tags(field: FieldDescriptor, owner: str) -> tuple[str, ...]:
    union = _read(descriptor_pool.Default().FindMessageTypeByName(owner)).union
    if union is None:
        msg = f"{field.full_name}: {owner} has no union"
        raise ContractError(msg)
    return tuple(variant.tag for variant in union.variants)
