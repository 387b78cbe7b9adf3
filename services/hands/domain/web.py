"""Calls of the web tools, which no sandbox runs and which change nothing (SEMANTICS §2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from services.hands.domain.toolset import InputRefused

if TYPE_CHECKING:
    from drover.agent.v1.tool_pb2 import WebSettings

FETCH: Final = "web_fetch"
SEARCH: Final = "web_search"
WEB_TOOLS: Final = frozenset({FETCH, SEARCH})

SECONDS: Final = 90.0
"""For how long an answer is waited for: less than whoever asks for the call waits."""

_INPUTS: Final = {FETCH: "url", SEARCH: "query"}


@dataclass(frozen=True, slots=True)
class WebCall:
    """A call of `tool`; `text` is its URL or its query. `settings` are the agent's."""

    tool: str
    text: str
    settings: WebSettings


def parse(tool: str, text: str, settings: WebSettings) -> WebCall:
    """The call that the JSON text of an input asks for. Raises `InputRefused`."""
    key = _INPUTS[tool]
    try:
        given: Any = json.loads(text or "{}")
        json.dumps(given, ensure_ascii=False).encode()  # refuses single surrogates
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{tool} failed: invalid_tool_input. It is not valid JSON.") from error
    if not isinstance(given, dict) or given.keys() != {key} or not isinstance(given[key], str):
        raise InputRefused(f"{tool} failed: invalid_tool_input. It takes `{key}`, a string, alone.")
    return WebCall(tool, given[key], settings)
