"""What the hands decide: which calls run, which generation may ask, what a tool's input must be."""

from __future__ import annotations
