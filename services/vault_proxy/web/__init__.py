"""The web tools: pages and searches for sessions, without any credential of theirs."""

from __future__ import annotations
