"""Seeds of runs that are left to chance: printed, and taken again from one variable."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Final

VARIABLE: Final = "DROVER_SEED"
"""The seed of a run that is to come again as it was; unset takes a new one each time."""


def chosen_seed() -> int:
    """This run's seed, of which its output tells."""
    seed = int(os.environ.get(VARIABLE) or secrets.randbelow(1_000_000))
    sys.stdout.write(f"{VARIABLE}={seed}\n")
    return seed
