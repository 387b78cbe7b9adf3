"""The HTTP gateway: routes, JSON, authentication and streams of the public API."""

from __future__ import annotations
