"""MCP, spoken on behalf of sessions by the official library: credentials stay in this process."""

from __future__ import annotations
