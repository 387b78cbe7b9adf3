"""Where sandboxes come from: one port, an adapter per technology."""

from __future__ import annotations
