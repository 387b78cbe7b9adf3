"""JSON Schema of the contract's messages, as requests take them and as answers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.transcode.shape import ContractError, Kind

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from drover.api.v1 import annotations_pb2 as api
    from gateway.transcode.shape import FieldShape, MessageShape, Shapes, Variant

Schema = dict[str, Any]

_NULL: Schema = {"type": "null"}


class Schemas:
    """Collects the schemas of messages under `components`, requests and answers apart."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self.components: dict[str, Schema] = {}

    def request(self, descriptor: Descriptor) -> Schema:
        """A reference to what requests may send for a message."""
        return self._reference(descriptor, "Input", self._request_schema)

    def body(self, descriptor: Descriptor, elsewhere: frozenset[str]) -> Schema:
        """A request's body: a message without the fields that travel elsewhere."""
        return self._request_schema(self._shapes.of(descriptor), elsewhere)

    def answer(self, descriptor: Descriptor) -> Schema:
        """A reference to what answers show of a message."""
        return self._reference(descriptor, "", self._answer_schema)

    def value(self, field: FieldShape, rules: api.FieldRules) -> Schema:
        """What requests may send for one value of a field, with its limits."""
        match field.kind:
            case Kind.STRING:
                return _string(field, rules)
            case Kind.INT:
                return _integer(field, rules)
            case Kind.OPAQUE:
                return {"type": "object"} if rules.string.json_object else {}
            case Kind.METADATA_PATCH:
                return _metadata_patch()
            case Kind.MESSAGE if field.message is not None:
                return self.request(field.message)
            case _:
                return _plain(field)

    def field(self, field: FieldShape) -> Schema:
        """What requests may send for a field, lists and maps included, but for null."""
        rules = field.rules
        if field.repeated:
            return _limited(
                {"type": "array", "items": self.value(field, rules.repeated.items)},
                minItems=max(rules.repeated.min_items, int(rules.required)),
                maxItems=_given(rules.repeated, "max_items"),
                uniqueItems=rules.repeated.unique,
            )
        if field.map:
            return _limited(
                {"type": "object", "additionalProperties": self.value(field, rules.map.values)},
                propertyNames=_limits_of_string(rules.map.keys.string),
                minProperties=int(rules.required),
                maxProperties=_given(rules.map, "max_pairs"),
            )
        return self.value(field, rules)

    def _reference(self, descriptor: Descriptor, suffix: str, make: Any) -> Schema:  # noqa: ANN401
        package = descriptor.full_name.split(".")[-3]
        name = f"{package}.{descriptor.name}{suffix}"
        if name not in self.components:
            self.components[name] = {}  # its own fields may refer to it
            self.components[name] = make(self._shapes.of(descriptor))
        return {"$ref": f"#/components/schemas/{name}"}

    def _request_schema(
        self, shape: MessageShape, elsewhere: frozenset[str] = frozenset()
    ) -> Schema:
        if shape.union is None:
            whole = self._request_object(shape, elsewhere, None)
        else:
            accepted = [variant for variant in shape.union.variants if variant.accepted]
            each = [self._request_object(shape, elsewhere, variant) for variant in accepted]
            if not shape.union.required:
                each.append(self._request_object(shape, elsewhere, None))
            whole = {"oneOf": each}
        if not shape.shorthand:
            return whole
        return {"anyOf": [self.field(self._shapes.shorthand(shape)), whole]}

    def _request_object(
        self, shape: MessageShape, elsewhere: frozenset[str], variant: Variant | None
    ) -> Schema:
        fields = [field for field in shape.fields if field.name not in elsewhere]
        properties: dict[str, Schema] = {}
        required: list[str] = []
        if variant is not None:
            properties["type"] = {"const": variant.tag}
            required.append("type")
            fields += self._shapes.of(variant.message).fields
        elif shape.type:
            constant: Schema = {"const": shape.type}
            properties["type"] = constant if shape.type_required else _or_null(constant)
            required += ["type"] * shape.type_required
        for field in fields:
            if field.read_only:
                continue
            schema = self.field(field)
            needed = _is_needed(field)
            properties[field.name] = schema if needed or field.not_null else _or_null(schema)
            required += [field.name] * needed
        return _object(properties, required) | {"additionalProperties": False}

    def _answer_schema(self, shape: MessageShape) -> Schema:
        if shape.union is None:
            return self._answer_object(shape, None)
        return {"oneOf": [self._answer_object(shape, one) for one in shape.union.variants]}

    def _answer_object(self, shape: MessageShape, variant: Variant | None) -> Schema:
        fields = list(shape.fields)
        properties: dict[str, Schema] = {}
        if variant is not None:
            properties["type"] = {"const": variant.tag}
            fields += self._shapes.of(variant.message).fields
        elif shape.type:
            properties["type"] = {"const": shape.type}
        required = list(properties)
        for field in fields:
            if field.write_only:
                continue
            properties[field.name] = self._shown(field)
            required += [field.name] * (not field.omit_unset)
        return _object(properties, required)

    def _shown(self, field: FieldShape) -> Schema:
        if field.message is not None:
            schema = self.answer(field.message)
        else:
            schema = {} if field.kind is Kind.OPAQUE else _plain(field)
        if field.repeated:
            return {"type": "array", "items": schema}
        if field.map:
            return {"type": "object", "additionalProperties": schema}
        may_lack = field.presence or field.kind in {Kind.ENUM, Kind.OPAQUE}
        may_be_null = may_lack and (field.null_by or not field.omit_unset)
        return _or_null(schema) if may_be_null else schema


def _is_needed(field: FieldShape) -> bool:
    """Whether a request without the field, or with null for it, is refused."""
    if field.repeated:
        return bool(field.rules.required or field.rules.repeated.min_items)
    if field.map or field.presence:
        return field.rules.required
    return field.rules.required or field.rules.string.min_len > 0


def _plain(field: FieldShape) -> Schema:
    match field.kind:
        case Kind.STRING:
            return {"type": "string"}
        case Kind.BOOL:
            return {"type": "boolean"}
        case Kind.INT:
            return {"type": "integer"}
        case Kind.DOUBLE:
            return {"type": "number"}
        case Kind.ENUM:
            return {"type": "string", "enum": list(field.texts.values())}
        case Kind.TIMESTAMP:
            return {"type": "string", "format": "date-time"}
        case _:
            msg = f"{field.name} has no schema"
            raise ContractError(msg)


def _string(field: FieldShape, rules: api.FieldRules) -> Schema:
    if field.tags:
        return {"type": "string", "enum": list(field.tags)}
    schema = _limits_of_string(rules.string)
    if rules.required and not field.presence:
        schema["minLength"] = max(1, schema.get("minLength", 0))
    return schema


def _limits_of_string(rules: api.StringRules) -> Schema:
    return _limited(
        {"type": "string"},
        minLength=rules.min_len,
        maxLength=_given(rules, "max_len") or _given(rules, "max_bytes"),
        pattern=rules.pattern,
        enum=list(getattr(rules, "in")),
    )


def _integer(field: FieldShape, rules: api.FieldRules) -> Schema:
    low, high = field.range
    least, most = _given(rules.int64, "gte"), _given(rules.int64, "lte")
    return {
        "type": "integer",
        "minimum": low if least is None else max(low, least),
        "maximum": high if most is None else min(high, most),
    }


def _metadata_patch() -> Schema:
    from drover.api.v1 import annotations_pb2, metadata_pb2  # noqa: PLC0415

    rules = metadata_pb2.MetadataPatch.DESCRIPTOR.fields_by_name["set"].GetOptions()
    limits = rules.Extensions[annotations_pb2.rules].map
    value = _limits_of_string(limits.values.string)
    return {
        "type": "object",
        "additionalProperties": _or_null(value),
        "propertyNames": _limits_of_string(limits.keys.string),
        "maxProperties": limits.max_pairs,
    }


def _given(rules: Any, name: str) -> int | None:  # noqa: ANN401  # any of the rules' messages
    return getattr(rules, name) if rules.HasField(name) else None


def _limited(schema: Schema, **limits: object) -> Schema:
    return schema | {
        name: limit for name, limit in limits.items() if limit not in (None, 0, "", [])
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": required} if required else schema
