"""Sandboxes of a Docker engine."""

from __future__ import annotations
