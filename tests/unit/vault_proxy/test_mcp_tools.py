from __future__ import annotations

import json

import mcp_types as types

from services.vault_proxy.mcp.limits import Limits
from services.vault_proxy.mcp.tools import told

LIMITS = Limits(description_characters=200)
OBJECT = {"type": "object"}


def test_schemas_keep_the_order_of_their_keys() -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {}}, "$defs": {"ü": {}}}
    [tool] = told([types.Tool(name="t", input_schema=schema)], LIMITS)
    assert list(json.loads(tool.input_schema)["properties"]) == ["z", "a"]
    assert json.loads(tool.input_schema) == schema
    assert tool.annotations == ""


def test_a_title_stands_in_for_a_description() -> None:
    [tool] = told([types.Tool(name="t", title="Does it", input_schema=OBJECT)], LIMITS)
    assert tool.description == "Does it"


def test_a_name_is_told_once_and_none_is_no_tool() -> None:
    tools = [
        types.Tool(name="", input_schema=OBJECT),
        types.Tool(name="x" * 1_025, input_schema=OBJECT),
        types.Tool(name="twice", description="first", input_schema=OBJECT),
        types.Tool(name="twice", description="second", input_schema=OBJECT),
    ]
    assert [(tool.name, tool.description) for tool in told(tools, LIMITS)] == [("twice", "first")]


def test_a_long_description_is_cut_and_says_so() -> None:
    tool = types.Tool(name="t", description="x" * 201, input_schema=OBJECT)
    description = told([tool], LIMITS)[0].description
    assert (len(description), description.endswith("is cut here)")) == (200, True)
