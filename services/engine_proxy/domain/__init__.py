"""What is passed on, and what is not."""

from __future__ import annotations
