"""The hands: sandboxes, workspaces and the journal of what ran in them."""

from __future__ import annotations
