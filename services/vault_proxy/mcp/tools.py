"""An MCP server's tools as they are told to hands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from drover.event.v1.mcp_tool_pb2 import McpTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mcp_types as types

    from services.vault_proxy.mcp.limits import Limits

_CUT: Final = "… (the description goes on, and is cut here)"


def told(tools: Sequence[types.Tool], limits: Limits) -> list[McpTool]:
    """The tools in the server's order, those of a name once.

    Which of them a model can be given is for the brain to judge, and to say.
    """
    found: dict[str, McpTool] = {}
    for tool in tools:
        if tool.name in found or not 0 < len(tool.name) <= limits.name_characters:
            continue
        found[tool.name] = McpTool(
            name=_clean(tool.name),
            description=_clean(_cut(tool.description or tool.title or "", limits)),
            input_schema=_clean(json.dumps(tool.input_schema, ensure_ascii=False)),
            annotations=_annotations(tool),
        )
    return list(found.values())


def _cut(text: str, limits: Limits) -> str:
    most = limits.description_characters
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def _annotations(tool: types.Tool) -> str:
    if tool.annotations is None:
        return ""
    told = tool.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)
    return _clean(json.dumps(told, ensure_ascii=False)) if told else ""


def _clean(text: str) -> str:
    """Text that a protobuf string can hold."""
    return text.encode("utf-8", "replace").decode()
