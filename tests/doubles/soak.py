"""How long the long runs are: one variable says it for all of them.

They are in `tests/fault` and `tests/adversarial/sandbox`, which `make soak` runs whole.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "DROVER_SOAK"
"""A factor: 1 is the whole of every long run (`make soak`), unset is the share that CI runs."""

_SHARE: Final = 0.08
_WHOLE_TAKES: Final = 4
"""How many times what it may take in CI a test may take in the whole of its run."""


def limit(seconds: float) -> float:
    """The time limit of a test that may take `seconds` in CI: longer where its run is."""
    return seconds * max(1.0, _WHOLE_TAKES * share(1))


def share(whole: float, *, least: float = 0) -> float:
    """The part of `whole` (seconds, rounds) that this run has time for.

    `least` is what a run needs to show anything at all.
    """
    return max(least, whole * float(os.environ.get(VARIABLE) or _SHARE))
