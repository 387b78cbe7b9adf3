"""Copies of the sessions' workspaces in a store that outlives this machine."""

from __future__ import annotations
