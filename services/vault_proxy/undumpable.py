"""Keeps what this process knows within its memory (case V11)."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def keep_memory_closed() -> None:
    """No core dump, and no other process of the same user may read this one's memory.

    Linux: `/proc/<pid>/mem`, `ptrace(2)` and `environ` are root's alone from then on. Raises
    `OSError` where that cannot be had.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
