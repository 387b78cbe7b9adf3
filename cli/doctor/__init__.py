"""`drover doctor`: what this machine has, and what to do about what it lacks."""

from __future__ import annotations
