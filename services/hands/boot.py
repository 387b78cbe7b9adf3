"""Which life of the machine this is.

What was written in an earlier one and not synced may be there without what was written before it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Another one after each start of the machine."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
