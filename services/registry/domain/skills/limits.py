"""How large a skill may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 30 * 1024 * 1024
"""Unpacked, ENDPOINTS "Skills"."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""What an operator may allow: the hands unpack no more."""


@dataclass(frozen=True, slots=True)
class SkillLimits:
    """Of an upload, whatever it says of itself.

    `ratio` is how many times its size an entry of an archive may grow to, once it is larger than
    `ratio_from` bytes.
    """

    max_bytes: int = MAX_BYTES
    entries: int = 2000
    path_bytes: int = 512
    part_bytes: int = 255
    depth: int = 32
    ratio: int = 200
    ratio_from: int = 1024 * 1024

    @property
    def upload_bytes(self) -> int:
        """Of an archive as it is uploaded: what does not get smaller, and what names it."""
        return self.max_bytes + 1024 * 1024
