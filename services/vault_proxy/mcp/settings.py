"""Settings of the MCP client."""

from __future__ import annotations

from pydantic import Field

from chassis.settings import Settings
from services.vault_proxy.mcp.limits import Limits


class McpSettings(Settings):
    """What calls of MCP servers may cost."""

    mcp_call_seconds: float = Field(
        default=110,
        gt=0,
        le=115,
        description="Longest that a call of an MCP server's tool may take; hands wait no longer.",
    )
    mcp_idle_seconds: float = Field(
        default=100,
        gt=0,
        le=115,
        description="Longest that an MCP server may say nothing while a call waits.",
    )
    mcp_answer_mib: int = Field(
        default=16, ge=1, le=24, description="Largest answer of an MCP server, in MiB."
    )

    def mcp_limits(self) -> Limits:
        """The limits that these settings make."""
        return Limits(
            call_seconds=self.mcp_call_seconds,
            idle_seconds=self.mcp_idle_seconds,
            answer_bytes=self.mcp_answer_mib * 1024 * 1024,
        )
