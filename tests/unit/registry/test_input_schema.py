from __future__ import annotations

import json

import pytest

from chassis.errors import DroverError, Reason
from services.registry.domain.input_schema import check_input_schema

PATH = "tools.0.input_schema"


def refusal(schema: object) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(DroverError) as refused:
        check_input_schema(text, PATH)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": None, "required": None},
        {"type": "object", "properties": {"a.b_c-D9": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"n": {"oneOf": [{"type": "string"}, True]}}},
        {"type": "object", "properties": {"n": {"default": {"$ref": "is data here"}}}},
        {"type": "object", "properties": {"n": {"enum": [{"$ref": "data"}]}}},
        {"type": "object", "additionalProperties": False, "x-vendor": {"$ref": "unknown keyword"}},
        {"type": "object", "patternProperties": {"^any name at all$": {"type": "number"}}},
    ],
)
def test_plain_object_schemas_are_accepted(schema: dict[str, object]) -> None:
    check_input_schema(json.dumps(schema), PATH)


@pytest.mark.parametrize("kind", ["string", ["object"], ["object", "null"], None])
def test_the_top_level_must_be_an_object(kind: object) -> None:
    assert refusal({"type": kind}) == f'{PATH}.type: must be "object"'
    assert refusal({}) == f'{PATH}.type: must be "object"'


@pytest.mark.parametrize("combinator", ["oneOf", "anyOf", "allOf"])
def test_combinators_are_refused_at_the_top_level_only(combinator: str) -> None:
    choice = [{"type": "object"}]
    assert refusal({"type": "object", combinator: choice}).startswith(f"{PATH}.{combinator}: ")
    nested = {"type": "object", "properties": {"a": {combinator: choice}}}
    check_input_schema(json.dumps(nested), PATH)


@pytest.mark.parametrize(
    ("below", "path"),
    [
        ({"$ref": "#"}, "$ref"),
        ({"properties": {"a": {"$ref": "#"}}}, "properties.a.$ref"),
        ({"properties": {"a": {"items": {"$ref": "#"}}}}, "properties.a.items.$ref"),
        ({"properties": {"a": {"anyOf": [{}, {"$ref": "#"}]}}}, "properties.a.anyOf.1.$ref"),
        ({"$defs": {"d": {"not": {"$ref": "#"}}}}, "$defs.d.not.$ref"),
        ({"additionalProperties": {"$ref": "#"}}, "additionalProperties.$ref"),
    ],
)
def test_references_are_refused_wherever_a_schema_stands(
    below: dict[str, object], path: str
) -> None:
    assert refusal({"type": "object", **below}) == f"{PATH}.{path}: references are not allowed"


@pytest.mark.parametrize("name", ["", "a b", "ä", "$ref", "x" * 65, "a\n"])
def test_property_names_are_letters_digits_and_a_few_signs(name: str) -> None:
    assert "1 to 64 letters" in refusal({"type": "object", "properties": {name: {}}})
    nested = {"type": "object", "properties": {"ok": {"properties": {name: {}}}}}
    assert refusal(nested).startswith(f"{PATH}.properties.ok.properties: ")


def test_misshapen_properties_and_required_are_refused() -> None:
    assert refusal({"type": "object", "properties": []}).startswith(f"{PATH}.properties: ")
    assert refusal({"type": "object", "required": "a"}).startswith(f"{PATH}.required: ")
    assert refusal({"type": "object", "required": [1]}).startswith(f"{PATH}.required: ")


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a": ' + "9" * 5000 + "}"])
def test_text_that_is_no_json_object_is_refused(text: str) -> None:
    assert refusal(text) == f"{PATH}: must be a JSON object"


def test_deep_nesting_is_refused_rather_than_followed() -> None:
    bomb = '{"type":"object","not":' + '{"not":' * 200 + "{}" + "}" * 201
    assert "nested at most" in refusal(bomb)
    assert refusal('{"a":' * 100_000) == f"{PATH}: must be a JSON object"
