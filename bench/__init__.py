"""Speed as ratios, each beside its baseline in the same run."""

from __future__ import annotations
