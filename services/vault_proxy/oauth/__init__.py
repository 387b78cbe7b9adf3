"""Access tokens of MCP servers: got from token endpoints, kept before they are used."""

from __future__ import annotations
