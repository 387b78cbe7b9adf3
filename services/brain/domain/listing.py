"""What the MCP servers answered, made fit for the log and held against what it has of them.

All that depends on a server's words is settled here, once: names, lengths, schemas that the model's
API would refuse. What stands in the log is what the model is sent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drover.event.v1.mcp_tool_pb2 import McpListing, McpServerTools, McpTool
from drover.event.v1.session_event_pb2 import McpError, PlainError, SessionError
from services.brain.domain import policy, servers
from services.brain.domain.visible import visible, visible_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.agent.v1.tool_pb2 import McpToolset
    from drover.hands.v1.hands_service_pb2 import McpServerOutcome
    from services.brain.domain.servers import Server, Servers

MAX_NAME: Final = 128
"""Characters of a tool's name, as the Messages API and the registry's configs take it."""

MAX_OFFERED: Final = 256
"""Tools of MCP servers that the model is told of (SEMANTICS §4)."""

MAX_TEXT: Final = 524_288
"""Bytes of their names, descriptions and schemas together, which every request to the model has."""

MAX_LISTED: Final = 2_000
"""Tools of one server that are looked at, the disabled ones among them."""

MAX_DESCRIPTION: Final = 16_384
"""Characters of a description. A longer one is cut off: the tool is of use all the same."""

MAX_SCHEMA: Final = 65_536
"""Bytes of an input schema."""

MAX_ANNOTATIONS: Final = 4_096
"""Bytes of what a server says of a tool's effects, past which it is taken to say nothing."""

MAX_TOLD: Final = 10
"""Tools that an error names; of more it gives the number."""

_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_RESERVED_PREFIXES: Final = ("mcp__", "ant__")
# The Messages API takes none of these at the top of a schema; the server judges the input anyway.
_COMBINATORS: Final = ("oneOf", "anyOf", "allOf")


@dataclass(slots=True)
class Found:
    """What asking the servers has come to: for the log, and for whoever watches the session."""

    listing: McpListing = field(default_factory=McpListing)
    errors: list[SessionError] = field(default_factory=list)


def compare(agent: SessionAgent, known: Servers, outcomes: Iterable[McpServerOutcome]) -> Found:
    """What is new in the answers. A server without an answer is one that could not be asked."""
    by_name = {outcome.mcp_server_name: outcome for outcome in outcomes}
    found = Found()
    names, room = _Names(agent, known), _Room()
    lists: list[tuple[McpServerTools, McpToolset]] = []
    for name, url, toolset in servers.toolsets(agent):
        outcome, listed = by_name.get(name), McpServerTools(mcp_server_name=name, url=url)
        if outcome is None or outcome.HasField("error"):
            listed.unreachable = True
            found.errors.append(_failure(name, outcome))
        else:
            tools, left_out = _tidy(toolset, outcome.tools, room)
            listed.tools.extend(tools)
            found.errors.extend(_left_out(name, left_out))
        lists.append((listed, toolset))
    names.give([listed for listed, _ in lists])
    for listed, toolset in lists:
        server = known.by_name.get(listed.mcp_server_name)
        if server is not None and server.url != listed.url:
            server = None
        if server is None or _differs(server, listed):
            found.listing.servers.append(listed)
        if server is not None and server.known and not listed.unreachable:
            found.errors.extend(_changes(server, toolset, listed))
    return found


def _differs(server: Server, listed: McpServerTools) -> bool:
    if server.unreachable or listed.unreachable:
        return server.unreachable != listed.unreachable
    return not server.known or server.tools != list(listed.tools)


def _tidy(
    toolset: McpToolset, tools: Sequence[McpTool], room: _Room
) -> tuple[list[McpTool], dict[str, str]]:
    """The tools as they are logged, and why others are not, by their names."""
    kept: dict[str, McpTool] = {}
    left_out: dict[str, str] = {}
    for tool in tools[:MAX_LISTED]:
        if not 0 < len(tool.name) <= MAX_NAME or visible(tool.name) != tool.name:
            left_out[visible(tool.name[:MAX_NAME]) or "(no name)"] = "its name cannot be used"
            continue
        if tool.name in kept:
            left_out[tool.name] = "it is listed twice"
            continue
        logged = McpTool(name=tool.name, digest=_digest(tool))
        if servers.enabled(toolset, tool.name):
            try:
                logged.input_schema = _schema(tool.input_schema)
            except (ValueError, RecursionError) as error:
                left_out[tool.name] = f"its input schema cannot be used ({error})"
                continue
            logged.description = visible(tool.description)[:MAX_DESCRIPTION]
            if len(tool.annotations.encode()) <= MAX_ANNOTATIONS:
                logged.annotations = tool.annotations
            if not room.take(logged):
                left_out[tool.name] = (
                    f"the model is told of {MAX_OFFERED} tools and {MAX_TEXT:,} bytes at the most"
                )
                continue
        kept[tool.name] = logged
    if len(tools) > MAX_LISTED:
        left_out["more"] = f"the server lists {len(tools)} tools"
    return list(kept.values()), left_out


def _schema(text: str) -> str:
    """The schema as the model's API takes it. Raises `ValueError`."""
    if len(text.encode()) > MAX_SCHEMA:
        msg = f"more than {MAX_SCHEMA:,} bytes"
        raise ValueError(msg)
    schema = json.loads(text or "{}", parse_constant=_no_constant)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        msg = "not that of an object"
        raise ValueError(msg)
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(map(_PROPERTY.match, properties)):
        msg = "names of members that the model's API does not take"
        raise ValueError(msg)
    cleaned: dict[str, Any] = {"type": "object"}
    cleaned |= {key: value for key, value in schema.items() if key not in _COMBINATORS}
    return json.dumps(visible_in(cleaned), ensure_ascii=False, separators=(",", ":"))


def _no_constant(constant: str) -> None:
    raise ValueError(constant)


def _digest(tool: McpTool) -> str:
    said = [tool.name, tool.description, _canonical(tool.input_schema)]
    said.append(_canonical(tool.annotations))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _canonical(text: str) -> str:
    """JSON text without what may change from one answer to the next and means nothing."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


class _Room:
    """What the model can still be told of."""

    def __init__(self) -> None:
        self._tools = MAX_OFFERED
        self._bytes = MAX_TEXT

    def take(self, tool: McpTool) -> bool:
        """Takes room for a tool, if there is enough."""
        size = tool.ByteSize()
        if not self._tools or size > self._bytes:
            return False
        self._tools -= 1
        self._bytes -= size
        return True


class _Names:
    """Gives names to tools that have none.

    A tool keeps its name for the length of the session: the conversation has calls by it, and a
    server that comes to offer a tool of the same name must not take it over.
    """

    def __init__(self, agent: SessionAgent, known: Servers) -> None:
        own = {tool.custom.name for tool in agent.tools if tool.HasField("custom")}
        own.update(policy.BUILT_IN)
        self._known = {key: name for key, name in known.names.items() if name not in own}
        self._taken = own | set(self._known.values())

    def give(self, lists: Iterable[McpServerTools]) -> None:
        offered = [
            ((listed.mcp_server_name, tool.name), tool)
            for listed in lists
            for tool in listed.tools
            if tool.input_schema
        ]
        wanted = Counter(_fit(tool.name) for key, tool in offered if key not in self._known)
        for key, tool in offered:
            name = self._known.get(key)
            if name is None:
                name = _fit(tool.name)
                if wanted[name] > 1 or name in self._taken or name.startswith(_RESERVED_PREFIXES):
                    name = self._qualified(*key)
                self._taken.add(name)
            tool.offered_name = name

    def _qualified(self, server_name: str, tool_name: str) -> str:
        name = f"mcp__{_fit(server_name)}__{_fit(tool_name)}"
        if len(name) <= MAX_NAME and name not in self._taken:
            return name
        digest = hashlib.sha256(f"{server_name}\0{tool_name}".encode()).hexdigest()[:10]
        return f"{name[: MAX_NAME - 11]}_{digest}"


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)[:MAX_NAME]


def _failure(name: str, outcome: McpServerOutcome | None) -> SessionError:
    if outcome is not None:
        return outcome.error
    return SessionError(
        message=f"The MCP server {name} could not be asked for its tools.",
        mcp_connection_failed_error=McpError(mcp_server_name=name),
    )


def _left_out(name: str, reasons: dict[str, str]) -> list[SessionError]:
    if not reasons:
        return []
    told = "; ".join(f"{tool}: {why}" for tool, why in list(reasons.items())[:MAX_TOLD])
    return [_note(f"Tools of the MCP server {name} are left out: {told}{_more(reasons)}.")]


def _changes(server: Server, toolset: McpToolset, listed: McpServerTools) -> list[SessionError]:
    """What is told of tools that are not as they were when the log last had them."""
    before = {tool.name: tool for tool in server.tools}
    changed = [
        tool
        for tool in listed.tools
        if tool.offered_name
        and servers.is_strange(toolset, server, tool)
        and (tool.name not in before or before[tool.name].digest != tool.digest)
    ]
    if not changed:
        return []
    told = "; ".join(_change(before.get(tool.name), tool) for tool in changed[:MAX_TOLD])
    return [
        _note(
            f"The MCP server {listed.mcp_server_name} has changed its tools during this session: "
            f"{told}{_more(changed)}. A call of such a tool waits for a user.tool_confirmation "
            "until one has been allowed."
        )
    ]


def _change(before: McpTool | None, now: McpTool) -> str:
    if before is None:
        return f"{now.name} is new"
    parts = {"description": "description", "input_schema": "input schema"}
    parts["annotations"] = "annotations"
    names = [text for part, text in parts.items() if getattr(before, part) != getattr(now, part)]
    what = " and ".join(names) if before.offered_name and names else "definition"
    return f"{now.name} has another {what}"


def _more(things: Sequence[object] | dict[str, str]) -> str:
    return f"; and {len(things) - MAX_TOLD} more" if len(things) > MAX_TOLD else ""


def _note(text: str) -> SessionError:
    return SessionError(message=text, unknown_error=PlainError())
