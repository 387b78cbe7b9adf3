"""The journal's database."""

from __future__ import annotations
