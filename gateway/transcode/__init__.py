"""HTTP and JSON derived from the contract's descriptors and their options."""

from __future__ import annotations
