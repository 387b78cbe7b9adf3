"""What a process gives up before it runs what it does not trust: see prctl(2) and capabilities(7).

Nothing that is given up here comes back, for it or for what it starts.
"""

from __future__ import annotations

import ctypes
import errno
import os

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SECCOMP_MODE_FILTER = 2
_STEP_BYTES = 8  # struct sock_filter
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def hide() -> None:
    """Has no other process of its user open what its descriptors are, or read its memory.

    A command that wrote to the agent's output would end the sandbox. Lasts until it runs another
    program.
    """
    _control(_PR_SET_DUMPABLE, 0)


def filter_calls(steps: bytes) -> None:
    """Has the kernel refuse what a filter refuses: an array of `struct sock_filter`."""
    program = _Program(len(steps) // _STEP_BYTES, steps)
    keep_privileges_away()
    _control(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def keep_privileges_away() -> None:
    """Has no program that it runs get more privileges than it has."""
    _control(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Gives up every capability, and the right to any."""
    for capability in range(_MOST_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            if ctypes.get_errno() != errno.EINVAL:
                check(-1, "prctl")
            break  # the kernel knows no more of them
    _control(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    keep_capabilities()


def keep_capabilities(*kept: int) -> None:
    """Gives up all other capabilities than those of these numbers, of the first 32."""
    mask = sum(1 << capability for capability in kept)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable ones, and those of numbers from 32 on.
    held = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    check(_libc.capset(header, held), "capset")


def check(result: int, what: str) -> None:
    """Ends the process where a call has failed: it must not go on with what it was to give up."""
    if result < 0:
        raise SystemExit(f"{what}: {os.strerror(ctypes.get_errno())}")


def _control(option: int, value: int, more: object = 0) -> None:
    check(_libc.prctl(option, ctypes.c_ulong(value), more, 0, 0), f"prctl {option}")
