from __future__ import annotations

import json
from typing import Any

import pytest

from services.hands.domain import toolset
from services.hands.domain.toolset import InputRefused, parse


def refusal(tool: str, given: object) -> str:
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(InputRefused) as refused:
        parse(tool, text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("bash", {"command": "ls"}),
        ("bash", {"restart": True}),
        ("read", {"file_path": "a", "view_range": [1, -1]}),
        ("write", {"file_path": "a", "content": ""}),
        ("edit", {"file_path": "a", "old_string": "x", "new_string": "", "replace_all": True}),
        ("glob", {"pattern": "**/*.py"}),
        ("grep", {"pattern": "x", "path": "src"}),
    ],
)
def test_inputs_of_the_contract_are_taken_as_they_are(tool: str, given: dict[str, Any]) -> None:
    assert parse(tool, json.dumps(given)).input == given


@pytest.mark.parametrize("given", [{}, {"timeout_ms": 0}, {"timeout_ms": None}])
def test_timeout_of_zero_or_none_is_the_default(given: dict[str, Any]) -> None:
    assert parse("bash", json.dumps({"command": "x", **given})).timeout == 120.0


def test_timeout_is_in_milliseconds() -> None:
    assert parse("bash", '{"command":"x","timeout_ms":1500}').timeout == 1.5


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("bash", "", "bash: command is required"),
        ("bash", {"command": ""}, "bash: command is required"),
        ("bash", {"command": "x", "timeout_ms": -1}, "bash: timeout_ms must be 0 to 3600000"),
        ("bash", {"command": "x", "timeout_ms": True}, "bash: timeout_ms must be a whole number"),
        ("bash", {"command": "x\0y"}, "bash: command must not contain a null byte"),
        ("bash", {"command": 3}, "bash: command must be a string"),
        ("bash", {"cmd": "x"}, "bash: unknown input 'cmd'"),
        ("read", {}, "read: file_path is required"),
        ("read", {"file_path": "a", "view_range": [1]}, "read: view_range must be"),
        ("read", {"file_path": "a", "view_range": ["1", 2]}, "read: view_range must be"),
        ("read", {"file_path": "a", "view_range": [1, 1e400]}, "read: view_range must be"),
        ("read", {"file_path": "a", "view_range": [1, 10**30]}, "read: view_range must be"),
        ("write", {"file_path": "a"}, "write: content is required"),
        ("write", {"file_path": "", "content": ""}, "write: file_path must not be empty"),
        ("edit", {"file_path": "a", "old_string": "", "new_string": "b"}, "edit: old_string must"),
        ("glob", {"pattern": 5}, "glob: pattern must be a string"),
        ("grep", [], "grep: input must be a JSON object"),
        ("grep", "{", "grep: input is not valid JSON"),
        ("grep", '{"pattern":"\\ud800"}', "grep: input is not valid JSON"),
        ("web_fetch", {}, "unknown tool 'web_fetch'"),
        ("", {}, "unknown tool ''"),
    ],
)
def test_bad_input_is_refused_in_words_for_the_model(tool: str, given: object, text: str) -> None:
    assert refusal(tool, given).startswith(text)


def test_input_nested_without_end_is_refused_not_a_crash() -> None:
    assert "nested too deeply" in refusal("bash", "[" * 100_000)


def test_command_has_a_size() -> None:
    long = {"command": "x" * (toolset.MAX_COMMAND_BYTES + 1)}
    assert "at most" in refusal("bash", long)
