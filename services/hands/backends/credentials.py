"""A thread that is another user for a moment, so that what it starts is that user's for good.

A user belongs to a thread in Linux; that all threads of a process have the same is the C library's
doing, past which this goes (nptl(7), docs/adr/0037).
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_CAPABILITY_VERSION: Final = 0x20080522
_EFFECTIVE, _PERMITTED, _INHERITABLE = 0, 1, 2
_SET: Final = 3
"""Words for the capabilities of the first 32 numbers, and as many for the others."""
_KILL: Final = 1 << 5


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Of system calls (`asm/unistd.h`)."""

    setgroups: int
    setresuid: int
    setresgid: int


_GENERIC: Final = _Numbers(setgroups=159, setresuid=147, setresgid=149)
_MACHINES: Final = {
    "x86_64": _Numbers(setgroups=116, setresuid=117, setresgid=119),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
}

_libc = ctypes.CDLL(None, use_errno=True)


class UnknownMachine(Exception):  # noqa: N818  # a thing that happens
    """The numbers of this machine's system calls are not known."""


def shed() -> None:
    """Has this thread, and what it starts, be in no further group, and hand no capability on.

    Raises `OSError` and `UnknownMachine`.
    """
    _call(_numbers().setgroups, 0, None)
    held = _held()
    held[_INHERITABLE] = held[_SET + _INHERITABLE] = 0
    _hold(held)


@contextmanager
def of(user: int) -> Iterator[None]:
    """Has this thread be `user` while the body runs, in the group of the same number.

    What it starts meanwhile has no way back, which the thread has: root stays its saved user, and
    is not saved in a program that is run. Raises `OSError` and `UnknownMachine`.

    The thread may still signal any process: should it be killed meanwhile, what it has started
    before, as other users, is to end with it, and the kernel asks whether it may do that.
    """
    numbers = _numbers()
    _call(numbers.setresgid, user, user, 0)
    try:
        _call(numbers.setresuid, user, user, 0)
        try:
            held = _held()
            held[_EFFECTIVE], held[_SET + _EFFECTIVE] = held[_PERMITTED] & _KILL, 0
            _hold(held)
            yield
        finally:
            _call(numbers.setresuid, 0, 0, 0)
    finally:
        _call(numbers.setresgid, 0, 0, 0)


def _numbers() -> _Numbers:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise UnknownMachine(machine)
    return _MACHINES[machine]


def _held() -> ctypes.Array[ctypes.c_uint32]:
    """The thread's capabilities."""
    held = (ctypes.c_uint32 * (2 * _SET))()
    _check(_libc.capget((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), held))
    return held


def _hold(held: ctypes.Array[ctypes.c_uint32]) -> None:
    _check(_libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), held))


def _call(number: int, *arguments: int | None) -> None:
    words = [None if word is None else ctypes.c_long(word) for word in arguments]
    _check(_libc.syscall(ctypes.c_long(number), *words))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
