"""The built-in tools and what their inputs must be (SEMANTICS §1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_COMMAND_SECONDS: Final = 120.0
MAX_COMMAND_SECONDS: Final = 3600.0
FILE_TOOL_SECONDS: Final = 60.0
SEARCH_SECONDS: Final = 30.0
MAX_COMMAND_BYTES: Final = 1024 * 1024
_MAX_PATH = 4096
_MAX_PATTERN = 16 * 1024
_RANGE_ENDS = 2
_MAX_LINE = 2**53
_ESCAPED_SURROGATE = "\\ud"


class InputRefused(Exception):  # noqa: N818  # an answer to the model, not a fault
    """The tool cannot start with this input; the text tells the model why."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call whose input is valid. `timeout` is in seconds, from the tool's start."""

    tool: str
    input: dict[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class _Field:
    kind: type
    required: bool = False
    max_length: int | None = None
    may_be_empty: bool = True


_PATH = _Field(str, required=True, max_length=_MAX_PATH, may_be_empty=False)
_PATTERN = _Field(str, required=True, max_length=_MAX_PATTERN, may_be_empty=False)
_OPTIONAL_PATH = _Field(str, max_length=_MAX_PATH)
_FIELDS: Final[dict[str, dict[str, _Field]]] = {
    "bash": {"command": _Field(str), "restart": _Field(bool), "timeout_ms": _Field(int)},
    "read": {"file_path": _PATH, "view_range": _Field(list)},
    "write": {"file_path": _PATH, "content": _Field(str, required=True)},
    "edit": {
        "file_path": _PATH,
        "old_string": _Field(str, required=True, may_be_empty=False),
        "new_string": _Field(str, required=True),
        "replace_all": _Field(bool),
    },
    "glob": {"pattern": _PATTERN, "path": _OPTIONAL_PATH},
    "grep": {"pattern": _PATTERN, "path": _OPTIONAL_PATH},
}
TOOLS: Final = tuple(_FIELDS)
_KIND_NAMES = {str: "a string", bool: "a boolean", int: "a whole number", list: "an array"}


def parse(tool: str, text: str) -> ToolCall:
    """The call that a tool's name and the JSON text of its input ask for.

    Raises `InputRefused`.
    """
    fields = _FIELDS.get(tool)
    if fields is None:
        raise InputRefused(f"unknown tool {tool!r}: the sandbox has {', '.join(TOOLS)}")
    given = _object(tool, text)
    for key in given:
        if key not in fields:
            raise InputRefused(f"{tool}: unknown input {key!r}; it takes {', '.join(fields)}")
    checked = {key: given[key] for key in fields if given.get(key) is not None}
    for key, field in fields.items():
        _check(tool, key, field, checked.get(key))
    if tool == "bash":
        return _bash(checked)
    if tool == "read" and "view_range" in checked:
        _check_range(checked)
    timeout = SEARCH_SECONDS if tool in {"glob", "grep"} else FILE_TOOL_SECONDS
    return ToolCall(tool, checked, timeout)


def _object(tool: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
        # An escaped half of a surrogate pair is JSON, but no text that a file or a shell can take.
        if _ESCAPED_SURROGATE in text.lower() or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise InputRefused(f"{tool}: input is nested too deeply") from error
    except ValueError as error:
        raise InputRefused(f"{tool}: input is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputRefused(f"{tool}: input must be a JSON object")
    return value


def _check(tool: str, key: str, field: _Field, value: object) -> None:
    if value is None:
        if field.required:
            raise InputRefused(f"{tool}: {key} is required")
        return
    if not isinstance(value, field.kind) or (field.kind is int and isinstance(value, bool)):
        raise InputRefused(f"{tool}: {key} must be {_KIND_NAMES[field.kind]}")
    if isinstance(value, str):
        if not value and not field.may_be_empty:
            raise InputRefused(f"{tool}: {key} must not be empty")
        if field.max_length is not None and len(value) > field.max_length:
            raise InputRefused(f"{tool}: {key} must have at most {field.max_length} characters")


def _bash(given: dict[str, Any]) -> ToolCall:
    command = given.get("command", "")
    milliseconds = given.pop("timeout_ms", 0)
    if not command and not given.get("restart"):
        raise InputRefused("bash: command is required")
    if "\0" in command:
        raise InputRefused("bash: command must not contain a null byte")
    if len(command.encode()) > MAX_COMMAND_BYTES:
        raise InputRefused(
            f"bash: command must have at most {MAX_COMMAND_BYTES} bytes; use write for long files"
        )
    if not 0 <= milliseconds <= MAX_COMMAND_SECONDS * 1000:
        raise InputRefused(f"bash: timeout_ms must be 0 to {MAX_COMMAND_SECONDS * 1000:.0f}")
    return ToolCall("bash", given, milliseconds / 1000 or DEFAULT_COMMAND_SECONDS)


def _check_range(given: dict[str, Any]) -> None:
    ends = given["view_range"]
    if not ends:
        del given["view_range"]
    elif len(ends) != _RANGE_ENDS or not all(
        type(end) is int and abs(end) < _MAX_LINE for end in ends
    ):
        raise InputRefused("read: view_range must be [start_line, end_line]")
