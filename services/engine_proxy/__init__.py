"""What stands between the hands and a container engine: it passes on what sandboxes need."""

from __future__ import annotations
