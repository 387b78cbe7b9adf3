"""A whole stack on one machine: one supervisor, one process per service (ARCHITECTURE §11)."""

from __future__ import annotations
