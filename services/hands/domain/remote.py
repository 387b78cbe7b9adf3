"""Calls of MCP servers' tools, which no sandbox runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drover.event.v1.session_event_pb2 import McpError, SessionError
from drover.hands.v1.hands_service_pb2 import McpServerOutcome
from services.hands.domain.toolset import InputRefused

if TYPE_CHECKING:
    from chassis.errors import DroverError

REMOTE: Final = "@remote"
"""Stands for the hand that runs such calls, in grants too. No hand has that name."""

CALL_SECONDS: Final = 120.0
"""For how long an answer is waited for: less than whoever asks for the call waits."""

LIST_SECONDS: Final = 12.0

CONNECTION_FAILED: Final = "mcp_connection_failed"
AUTHENTICATION_FAILED: Final = "mcp_authentication_failed"
OUTCOME_UNKNOWN: Final = "outcome_unknown"
"""Error codes of the vault proxy."""

MAX_NAME: Final = 128

NO_PROXY: Final = "the outside is reached through the vault proxy, and the hands know of none"


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of the session's agent. `spills` is for calls of its tools (`McpCall`)."""

    name: str
    spills: bool = True


@dataclass(frozen=True, slots=True)
class McpCall:
    """A call of a tool that an MCP server has, by the server's own name of it.

    `text` is the input's JSON. `spills` says that a sandbox of the session may be asked to keep a
    result that is too long to show.
    """

    server: str
    name: str
    text: str
    spills: bool

    @property
    def tool(self) -> str:
        """What the journal calls it: never by the name of a built-in tool, which may run twice."""
        return f"mcp:{self.server}:{self.name}"


def parse(server: McpServer, name: str, text: str) -> McpCall:
    """The call; raises `InputRefused` for an input that is no JSON object."""
    if len(name) > MAX_NAME:
        raise InputRefused(f"the tool's name has more than {MAX_NAME} characters")
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{name}: input is not valid JSON") from error
    if not isinstance(value, dict):
        raise InputRefused(f"{name}: input must be a JSON object")
    return McpCall(server.name, name, text or "{}", server.spills)


def failure(server: str, error: DroverError) -> SessionError:
    """What a session is told of a server that could not be used."""
    about = McpError(mcp_server_name=server)
    if error.metadata.get("error_code") == AUTHENTICATION_FAILED:
        said = SessionError(mcp_authentication_failed_error=about)
    else:
        said = SessionError(mcp_connection_failed_error=about)
    said.message = error.message
    return said


def late(server: str) -> SessionError:
    """What a session is told of a server that did not answer in time."""
    return SessionError(
        message=f"The MCP server {server} did not list its tools within {LIST_SECONDS:.0f} s.",
        mcp_connection_failed_error=McpError(mcp_server_name=server),
    )


def without_proxy(server: str) -> McpServerOutcome:
    """What there is to say of a server where no vault proxy is known."""
    outcome = McpServerOutcome(mcp_server_name=server)
    outcome.error.message = f"{server}: {NO_PROXY}"
    outcome.error.mcp_connection_failed_error.mcp_server_name = server
    return outcome
