"""Messages of any type of the contract, drawn by hypothesis or filled in to the last field."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from gateway.transcode.shape import Kind, MessageShape, Shapes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from gateway.transcode.shape import FieldShape

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_texts = st.sampled_from(
    ['{"b":1,"a":[1e5,1.0,-0]}', "{}", '{ "z" : "\\u00e9" ,\n"y":null}', "7"]
)


class OpenShapes(Shapes):
    """Shapes that let everything in that goes out, so that every message can come back."""

    def of(self, descriptor: Descriptor) -> MessageShape:
        shape = super().of(descriptor)
        union = shape.union and dataclasses.replace(
            shape.union,
            variants=tuple(dataclasses.replace(one, accepted=True) for one in shape.union.variants),
        )
        fields = tuple(
            dataclasses.replace(one, read_only=False, write_only=False, not_null=False)
            for one in shape.fields
        )
        return dataclasses.replace(shape, union=union, fields=fields, mask="")


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, shapes: Shapes) -> Message:
    """A message with any of the fields that HTTP shows; its union is always set."""
    shape = shapes.of(descriptor)
    message = GetMessageClass(descriptor)()
    for field in shape.fields:
        if draw(st.booleans()):
            _put(message, field, draw(_values(field, shapes)))
    if shape.union is not None:
        variant = draw(st.sampled_from(shape.union.variants))
        chosen = getattr(message, variant.name)
        chosen.SetInParent()
        chosen.CopyFrom(draw(messages(variant.message, shapes)))
    return message


def _values(field: FieldShape, shapes: Shapes) -> st.SearchStrategy[Any]:
    one = _one(field, shapes)
    if field.repeated:
        return st.lists(one, max_size=3)
    return st.dictionaries(texts, one, max_size=3) if field.map else one


def _one(field: FieldShape, shapes: Shapes) -> st.SearchStrategy[Any]:
    if field.message is not None:
        return messages(field.message, shapes)
    if field.kind is Kind.STRING:
        return st.sampled_from(field.tags) if field.tags else texts
    return {
        Kind.BOOL: st.booleans(),
        Kind.INT: st.integers(*field.range),
        Kind.DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
        Kind.ENUM: st.sampled_from(list(field.texts) or [0]),
        Kind.TIMESTAMP: st.tuples(
            st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999_999_999)
        ),
        Kind.OPAQUE: json_texts,
        Kind.METADATA_PATCH: st.dictionaries(texts, texts | st.none(), max_size=3),
    }[field.kind]


def _put(message: Message, field: FieldShape, value: Any) -> None:
    target = getattr(message, field.name)
    if field.repeated:
        target.extend(value)
    elif field.map:
        target.update(value)
    elif field.kind is Kind.MESSAGE:
        target.SetInParent()
        target.CopyFrom(value)
    elif field.kind is Kind.TIMESTAMP:
        target.seconds, target.nanos = value
        target.SetInParent()
    elif field.kind is Kind.METADATA_PATCH:
        target.SetInParent()
        target.set.update({key: text for key, text in value.items() if text is not None})
        target.remove.extend(key for key, text in value.items() if text is None)
    else:
        setattr(message, field.name, value)


def full(message: Message, shapes: Shapes, samples: dict[str, Any]) -> None:
    """Sets every field that HTTP shows but those that `samples` name with None.

    Values are what `samples` say or make sense for the kind; unions get their first variant.
    """
    shape = shapes.of(message.DESCRIPTOR)
    for field in shape.fields:
        name = f"{message.DESCRIPTOR.name}.{field.name}"
        if name in samples and samples[name] is None:
            continue
        value = samples.get(name, _sample(field))
        target = getattr(message, field.name)
        if field.kind is Kind.MESSAGE:
            child = target.add() if field.repeated else target
            child.SetInParent()
            full(child, shapes, samples)
        elif field.kind is Kind.TIMESTAMP:
            target.seconds = 1_790_000_000
        elif field.map:
            target["key"] = value
        elif field.repeated:
            target.append(value)
        else:
            setattr(message, field.name, value)
    if shape.union is not None and message.WhichOneof(shape.union.name) is None:
        chosen = getattr(message, shape.union.variants[0].name)
        chosen.SetInParent()
    if shape.union is not None:
        full(getattr(message, message.WhichOneof(shape.union.name)), shapes, samples)


def _sample(field: FieldShape) -> Any:
    samples = {
        Kind.STRING: "text",
        Kind.BOOL: True,
        Kind.INT: 3,
        Kind.DOUBLE: 1.5,
        Kind.OPAQUE: '{"command":"ls"}',
    }
    if field.kind is Kind.ENUM:
        return next(iter(field.texts))
    return samples.get(field.kind)
