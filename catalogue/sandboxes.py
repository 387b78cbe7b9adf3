"""What an environment may ask for: kinds of sandbox, and how large up to the operator's ceilings.

The registry refuses what is out of range when an environment is made; the hands hold what was
stored earlier to the ceilings of today.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("local", "docker", "kubernetes")


@dataclass(frozen=True, slots=True)
class Measure:
    """One limit of a sandbox. `ceiling` counts where the operator names none."""

    name: str
    least: float
    ceiling: float
    whole: bool = True


MEASURES: Final = (
    Measure("memory_mib", 64, 16_384),
    Measure("cpus", 0.1, 16, whole=False),
    Measure("processes", 16, 4096),
    Measure("file_mib", 1, 16_384),
    Measure("tmp_mib", 1, 4096),
    Measure("workspace_mib", 16, 65_536),
)
DEFAULT_CEILINGS: Final[Mapping[str, float]] = {
    measure.name: measure.ceiling for measure in MEASURES
}


def amount(measure: Measure, text: str, ceiling: float) -> float:
    """The number that `text` says. Raises `ValueError`, which names the range."""
    try:
        value = float(text) if not measure.whole else int(text)
    except ValueError:
        value = math.nan
    plain = text.isascii() and text == text.strip() and not set("+-_") & set(text)
    if not (plain and measure.least <= value <= ceiling):
        noun = "a whole number" if measure.whole else "a number"
        msg = f"must be {noun} from {measure.least:g} to {_shown(ceiling)}"
        raise ValueError(msg)
    return value


def ceilings(text: str) -> Mapping[str, float]:
    """The operator's ceilings: a JSON object; what it does not name has its default.

    Raises `ValueError`, which says what is amiss.
    """
    try:
        given = json.loads(text) if text.strip() else {}
    except ValueError:
        given = None
    if not isinstance(given, dict):
        msg = 'must be a JSON object, such as {"memory_mib": 8192, "cpus": 4}'
        raise ValueError(msg)  # noqa: TRY004  # that is what settings report
    measures = {measure.name: measure for measure in MEASURES}
    for name, value in given.items():
        if name not in measures:
            msg = f"{name} is no limit: there are {', '.join(measures)}"
            raise ValueError(msg)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not measures[name].least <= value < math.inf:
            msg = f"{name} must be a number, at least {measures[name].least:g}"
            raise ValueError(msg)
    return {**DEFAULT_CEILINGS, **given}


def checked(text: str) -> str:
    """`text`, if `ceilings` can read it; for a setting's validation. Raises `ValueError`."""
    ceilings(text)
    return text


def _shown(number: float) -> str:
    return f"{number:.0f}" if float(number).is_integer() else f"{number:g}"
