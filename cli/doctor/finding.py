"""What a check found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """How a finding bears on Drover. Only `MISSING` keeps it from running."""

    FINE = "ok"
    OPTIONAL = "–"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about the machine, and what to do if it is not as it should be."""

    subject: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def fine(subject: str, detail: str) -> Finding:
    """It is there and works."""
    return Finding(subject, Verdict.FINE, detail)


def optional(subject: str, detail: str, remedy: str = "") -> Finding:
    """Drover does without it, or with less."""
    return Finding(subject, Verdict.OPTIONAL, detail, remedy)


def missing(subject: str, detail: str, remedy: str) -> Finding:
    """Drover cannot run like this."""
    return Finding(subject, Verdict.MISSING, detail, remedy)
