"""The first process of a container, where the agent's program is what the container runs.

The first process has the namespace's orphans to reap, cannot be killed from inside, and takes
everything along when it ends. So it is one that does nothing else, and the agent is its child.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_STEP_BYTES = 8  # struct sock_filter


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def divide(filter_path: str) -> None:
    """Returns in the agent. Ends with an error where the filter cannot be installed.

    Neither process lets others of its user open what its descriptors are: a command that wrote to
    the agent's output would end the sandbox.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _control(libc, _PR_SET_DUMPABLE, 0)
    if os.path.exists(filter_path):  # noqa: PTH110  # pathlib is slow to import
        _filter(libc, filter_path)
    agent = os.fork()
    if agent == 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    while True:
        pid, status = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _filter(libc: ctypes.CDLL, path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123
        steps = file.read()
    program = _Program(len(steps) // _STEP_BYTES, steps)
    _control(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _control(libc, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def _control(libc: ctypes.CDLL, option: int, value: int, more: object = 0) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), more, 0, 0) != 0:
        raise SystemExit(f"prctl {option}: {os.strerror(ctypes.get_errno())}")
