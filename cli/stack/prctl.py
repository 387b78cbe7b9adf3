"""The three process attributes of prctl(2) that keep a family of processes together."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(signal: int) -> None:
    """Has the kernel send `signal` to this process when its parent ends, however that ends."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def adopt_orphans(*, adopt: bool = True) -> None:
    """Makes this process the parent of every descendant whose own parent ends, or no longer."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def set_name(name: str) -> None:
    """Names this process for `ps` and `top`; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(name.encode()[:15]))


def _prctl(option: int, argument: int | ctypes.Array[ctypes.c_char]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
