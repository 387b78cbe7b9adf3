"""The egress proxy's data path: what speaks HTTP/1.1, TLS and WebSocket with both sides."""

from __future__ import annotations
