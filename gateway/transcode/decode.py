"""JSON to messages, compiled once per message type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from gateway.transcode import values
from gateway.transcode.document import Part
from gateway.transcode.refusal import Refused, one_of, unknown_field
from gateway.transcode.shape import ContractError, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from gateway.transcode.document import Json
    from gateway.transcode.shape import FieldShape, MessageShape, Shapes
    from gateway.transcode.values import Setter

_TYPE = "type"
_READ_ONLY = "is set by the server"


class Decoders:
    """Compiles decoders, each once."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self._known: dict[str, ObjectDecoder] = {}

    def of(self, descriptor: Descriptor) -> ObjectDecoder:
        """The decoder of a message type. Raises `ContractError` if JSON cannot hold it."""
        decoder = self._known.get(descriptor.full_name)
        if decoder is None:
            decoder = self._known[descriptor.full_name] = ObjectDecoder()
            decoder.compile(self.shapes.of(descriptor), self)
        return decoder

    def body(self, descriptor: Descriptor, elsewhere: Iterable[str]) -> ObjectDecoder:
        """The decoder of a request's body, whose fields `elsewhere` travel outside of it."""
        decoder = ObjectDecoder()
        decoder.compile(self.shapes.of(descriptor), self, frozenset(elsewhere))
        return decoder


class _Keys:
    """The keys that one message takes, and how each sets its field.

    `without_null` says what is wrong with null where it does not simply mean absent.
    """

    __slots__ = ("mask", "puts", "without_null")

    def __init__(self) -> None:
        self.puts: dict[str, Setter] = {}
        self.without_null: dict[str, str] = {}
        self.mask = ""

    def put(self, message: Message, key: str, value: Json) -> None:
        """Sets the field of `key`, which is known here."""
        try:
            if value is not None:
                self.puts[key](message, value)
            elif key in self.without_null:
                _refuse(self.without_null[key])
        except Refused as refused:
            raise refused.under(key) from None

    def note_presence(self, message: Message, members: Json) -> None:
        """Fills the presence mask, if there is one, with those keys that are fields here."""
        if self.mask and (present := [key for key in members if key in self.puts]):
            getattr(message, self.mask).paths.extend(present)


class ObjectDecoder:
    """Fills messages of one type from JSON values.

    With `exact`, some field beneath holds JSON text byte for byte: the value to read is then a
    `Part` of the request's text, otherwise it is a plain Python value.
    """

    def __init__(self) -> None:
        self.exact = False
        self.keys = _Keys()
        self.type = ""
        self.variants: dict[str, tuple[str, _Keys]] | None = None
        self._type_required = False
        self._union_required = False
        self._short: Setter | None = None

    def compile(
        self, shape: MessageShape, decoders: Decoders, elsewhere: frozenset[str] = frozenset()
    ) -> None:
        """Takes the shape in; fields in `elsewhere` are unknown here."""
        fields = [field for field in shape.fields if field.name not in elsewhere]
        inner = {
            field.name: decoders.of(field.message) for field in fields if field.message is not None
        }
        variants = [v for v in shape.union.variants if v.accepted] if shape.union else []
        chosen = {variant.tag: decoders.of(variant.message) for variant in variants}
        beneath = (*inner.values(), *chosen.values())
        self.exact = any(field.kind is Kind.OPAQUE for field in fields) or any(
            decoder.exact for decoder in beneath
        )
        for field in fields:
            if field.read_only:
                self.keys.puts[field.name] = _refuse_read_only
                self.keys.without_null[field.name] = _READ_ONLY
            else:
                self.keys.puts[field.name] = _setter(field, inner, exact=self.exact)
                if field.not_null:
                    self.keys.without_null[field.name] = "must not be null"
        self.keys.mask = shape.mask
        self.type, self._type_required = shape.type, shape.type_required
        if shape.union is not None:
            self._union_required = shape.union.required
            self.variants = {
                variant.tag: (variant.name, self._beside(chosen[variant.tag], variant.name))
                for variant in variants
            }
        if shape.shorthand:
            self._short = _shorthand(shape, decoders)

    def fill(self, message: Message, source: Json) -> None:
        """Sets `message` from a JSON value. Raises `Refused`."""
        members = _members(source) if type(source) is Part else source
        if type(members) is dict:
            if self.variants is None:
                self._fill_plain(message, members)
            else:
                self._fill_union(message, members, self.variants)
        elif self._short is None:
            raise Refused("must be an object")
        elif type(members) is not str:
            raise Refused("must be a string or an object")
        else:
            self._short(message, members)

    def _fill_plain(self, message: Message, members: dict[str, Json]) -> None:
        keys, expected = self.keys, self.type
        if expected:
            self._check_type(_plain(members.get(_TYPE)))
        for key, value in members.items():
            if key in keys.puts:
                keys.put(message, key, value)
            elif key != _TYPE or not expected:
                raise unknown_field(key)
        keys.note_presence(message, members)

    def _fill_union(
        self, message: Message, members: dict[str, Json], variants: dict[str, tuple[str, _Keys]]
    ) -> None:
        tag = _plain(members.get(_TYPE))
        if tag is None and not self._union_required:
            self._fill_plain(message, members)
            return
        if tag is None:
            raise Refused(f"is required: one of {', '.join(variants)}").under(_TYPE)
        chosen = variants.get(tag) if type(tag) is str else None
        if chosen is None:
            raise one_of(variants).under(_TYPE)
        name, inner = chosen
        variant, outer = getattr(message, name), self.keys
        variant.SetInParent()
        for key, value in members.items():
            if key in inner.puts:
                inner.put(variant, key, value)
            elif key in outer.puts:
                outer.put(message, key, value)
            elif key != _TYPE:
                raise unknown_field(key)
        inner.note_presence(variant, members)
        outer.note_presence(message, members)

    def _check_type(self, given: Json) -> None:
        if given is None:
            if self._type_required:
                raise Refused(f"is required: {self.type}").under(_TYPE)
        elif given != self.type:
            raise Refused(f"must be {self.type}").under(_TYPE)

    def _beside(self, variant: ObjectDecoder, name: str) -> _Keys:
        """The keys of a variant, which lie beside this object's own."""
        if variant.type or variant.variants is not None or _TYPE in variant.keys.puts:
            msg = f"{name}: a variant cannot have a type key of its own"
            raise ContractError(msg)
        if clash := variant.keys.puts.keys() & self.keys.puts.keys():
            msg = f"{name}: the enclosing object has {', '.join(clash)} too"
            raise ContractError(msg)
        if variant.exact == self.exact:
            return variant.keys
        keys = _Keys()
        keys.puts = {key: _from_part(put) for key, put in variant.keys.puts.items()}
        keys.without_null, keys.mask = variant.keys.without_null, variant.keys.mask
        return keys


def _members(part: Part) -> Json:
    """A part as far as its own object goes: members stay parts, but for null."""
    if part.kind != "{":
        return part.value()
    return {key: None if at.kind == "n" else at for key, at in part.members().items()}


def _plain(value: Json) -> Json:
    return value.value() if type(value) is Part else value


def _refuse(text: str) -> Never:
    raise Refused(text)


def _refuse_read_only(_message: Message, _value: object) -> None:
    raise Refused(_READ_ONLY)


def _from_part(put: Setter) -> Setter:
    """A setter of plain values, made to take parts."""
    return lambda message, part: put(message, part.value())


def _setter(field: FieldShape, inner: dict[str, ObjectDecoder], *, exact: bool) -> Setter:
    """The setter of a field within an object that is read exactly, or not."""
    if field.kind is Kind.OPAQUE:
        if field.repeated or field.map:
            msg = f"{field.name}: opaque fields are single"
            raise ContractError(msg)
        return lambda message, part: setattr(message, field.name, part.source)
    decoder = inner.get(field.name)
    if decoder is None:
        put = _value_setter(field)
    elif field.map:
        msg = f"{field.name}: maps hold scalars"
        raise ContractError(msg)
    else:
        make = _messages_setter if field.repeated else _message_setter
        put = make(field.name, decoder)
        if decoder.exact:
            return put
    return _from_part(put) if exact else put


def _value_setter(field: FieldShape) -> Setter:
    if field.kind is Kind.METADATA_PATCH and not field.repeated:
        return values.metadata_patch_setter(field.name)
    if field.kind is Kind.TIMESTAMP and not field.repeated:
        return values.timestamp_setter(field.name)
    read = values.json_reader(field)
    if field.map:
        return values.map_setter(field.name, read)
    if field.repeated:
        return values.list_setter(field.name, read)
    return values.scalar_setter(field.name, read)


def _message_setter(name: str, decoder: ObjectDecoder) -> Setter:
    def put(message: Message, value: Json) -> None:
        child = getattr(message, name)
        child.SetInParent()
        decoder.fill(child, value)

    return put


def _messages_setter(name: str, decoder: ObjectDecoder) -> Setter:
    def put(message: Message, value: Json) -> None:
        if type(value) is Part:
            value = value.items() if value.kind == "[" else None
        if type(value) is not list:
            raise Refused("must be an array")
        add, fill = getattr(message, name).add, decoder.fill
        for index, item in enumerate(value):
            try:
                fill(add(), item)
            except Refused as refused:
                raise refused.under(str(index)) from None

    return put


def _shorthand(shape: MessageShape, decoders: Decoders) -> Setter:
    """Sets the field at a shorthand's path from a bare string."""
    steps = shape.shorthand[:-1]
    put = _value_setter(decoders.shapes.shorthand(shape))

    def fill(message: Message, text: str) -> None:
        for step in steps:
            message = getattr(message, step)
            message.SetInParent()
        put(message, text)

    return fill
