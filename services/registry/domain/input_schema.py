"""The input schema of a custom tool: what of JSON Schema is accepted (SEMANTICS §4).

The schema is checked and then kept byte for byte: what the model is sent is what the client wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Never

from chassis.errors import DroverError, Reason

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_COMBINATORS = ("oneOf", "anyOf", "allOf")
# Where JSON Schema 2020-12 (and the drafts in use before it) puts schemas below a schema. Whatever
# else an object holds is data: a "$ref" in a `default` refers to nothing.
_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_MAX_DEPTH = 64
_SHOWN_NAME = 64

Schema = dict[str, object]


def check_input_schema(text: str, path: str) -> None:
    """Raises INVALID_ARGUMENT, naming the path below `path`, for a schema that is not accepted."""
    schema = _parse(text, path)
    if schema.get("type") != "object":
        _refuse(f"{path}.type", 'must be "object"')
    for combinator in _COMBINATORS:
        if combinator in schema:
            _refuse(f"{path}.{combinator}", "is not allowed at the top level")
    required = schema.get("required")
    if required is not None and not (
        isinstance(required, list) and all(isinstance(name, str) for name in required)
    ):
        _refuse(f"{path}.required", "must be a list of property names")
    _check(schema, path)


def _parse(text: str, path: str) -> Schema:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        _refuse(path, "must be a JSON object")
    if not isinstance(schema, dict):
        _refuse(path, "must be a JSON object")
    return schema


def _check(root: Schema, path: str) -> None:
    waiting = [(root, path, 0)]
    while waiting:
        schema, here, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            _refuse(path, f"may be nested at most {_MAX_DEPTH} levels deep")
        if "$ref" in schema:
            _refuse(f"{here}.$ref", "references are not allowed")
        properties = schema.get("properties")
        if properties is not None and not isinstance(properties, dict):
            _refuse(f"{here}.properties", "must be an object")
        for name in properties or ():
            if not _PROPERTY.match(name):
                _refuse(
                    f"{here}.properties",
                    "property names must be 1 to 64 letters, digits or any of _ . -",
                )
        waiting += [(below, at, depth + 1) for at, below in _below(schema, here)]


def _below(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """The schemas one level below `schema`, with their paths."""
    for keyword, value in schema.items():
        for at, below in _held(keyword, value):
            if isinstance(below, dict):
                yield f"{path}.{at}", below


def _held(keyword: str, value: object) -> Iterator[tuple[str, object]]:
    """What may be schemas in the value of `keyword`; `true` and `false` are schemas too."""
    if keyword in _ONE:
        yield keyword, value
    if keyword in _LISTS and isinstance(value, list):
        for index, below in enumerate(value):
            yield f"{keyword}.{index}", below
    if keyword in _MAPS and isinstance(value, dict):
        for name, below in value.items():
            yield f"{keyword}.{name[:_SHOWN_NAME]}", below


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
