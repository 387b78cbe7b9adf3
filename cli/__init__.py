"""The `drover` command: a client of the platform, and the supervisor of a stack on one machine."""

from __future__ import annotations
