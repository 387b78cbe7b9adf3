"""A system call filter: what no tool needs and what has broken sandboxes before (CASES S1, S5).

The filter is a list of what is refused, since the system's programs are not known in advance. It
is written as BPF by hand, so that no library is needed; see seccomp(2).
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache
from typing import Final

# Offsets in struct seccomp_data, of the low halves of the arguments.
_NR, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_EPERM: Final = 0x00050000 | errno.EPERM
_ENOSYS: Final = 0x00050000 | errno.ENOSYS
# As a kernel without that family says: what adds users goes on without the kernel's audit then.
_NO_FAMILY: Final = 0x00050000 | errno.EAFNOSUPPORT
_NEW_NAMESPACES: Final = (
    0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
)
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32: Final = 0x40000000

# The same number on every architecture.
_COMMON: Final = (
    *range(425, 428),  # io_uring
    *range(428, 434),  # open_tree move_mount fsopen fsconfig fsmount fspick
    438,  # pidfd_getfd
    440,  # process_madvise
    442,  # mount_setattr
    443,  # quotactl_fd
    467,  # open_tree_attr
)
_IO_URING: Final = frozenset(range(425, 428))  # ENOSYS: event loops then fall back


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int
    refused: tuple[int, ...]
    clone: int
    socket: int
    ioctl: int
    prctl: int
    clone3: int = 435


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(
        audit=0xC000003E,
        # ptrace syslog uselib ustat sysfs vhangup pivot_root _sysctl chroot acct settimeofday
        # mount umount2 swapon swapoff reboot iopl ioperm create/init/delete/query_module
        # quotactl nfsservctl lookup_dcookie clock_settime kexec_load add_key request_key keyctl
        # unshare perf_event_open fanotify_init name_to_handle_at open_by_handle_at clock_adjtime
        # setns process_vm_readv process_vm_writev kcmp finit_module kexec_file_load bpf userfaultfd
        refused=(
            *(101, 103, 134, 136, 139, 153, 155, 156, 161, 163, 164, 165, 166, 167, 168, 169),
            *(172, 173, 174, 175, 176, 178, 179, 180, 212, 227, 246, 248, 249, 250, 272, 298),
            *(300, 303, 304, 305, 308, 310, 311, 312, 313, 320, 321, 323),
        ),
        clone=56,
        socket=41,
        ioctl=16,
        prctl=157,
    ),
    "aarch64": _Architecture(
        audit=0xC00000B7,
        # lookup_dcookie umount2 mount pivot_root nfsservctl chroot vhangup quotactl acct unshare
        # kexec_load init_module delete_module clock_settime syslog ptrace reboot settimeofday
        # add_key request_key keyctl swapon swapoff perf_event_open fanotify_init
        # name_to_handle_at open_by_handle_at clock_adjtime setns process_vm_readv
        # process_vm_writev kcmp finit_module bpf userfaultfd kexec_file_load
        refused=(
            *(18, 39, 40, 41, 42, 51, 58, 60, 89, 97, 104, 105, 106, 112, 116, 117, 142, 170),
            *(217, 218, 219, 224, 225, 241, 262, 264, 265, 266, 268, 270, 271, 272, 273, 280),
            *(282, 294),
        ),
        clone=220,
        socket=198,
        ioctl=29,
        prctl=167,
    ),
}


def program(machine: str | None = None) -> bytes | None:
    """The filter as an array of `struct sock_filter`; None for a machine that it is not known for.

    `machine` is what `uname -m` says; this one when it is None.
    """
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    return None if architecture is None else _program(architecture, architecture.refused)


@cache
def of_holder(machine: str | None = None) -> bytes | None:
    """The same for a first process that only holds a sandbox: it cannot change what it ends with.

    Commands of its user can write to its memory, and the kernel is to kill it with its parent.
    """
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    return _program(architecture, (*architecture.refused, architecture.prctl))


def _program(architecture: _Architecture, refused: tuple[int, ...]) -> bytes:
    steps = [
        _step(_LOAD, _ARCH),
        # 32-bit programs would call by other numbers.
        *_return_unless(_EQUAL, architecture.audit, _ENOSYS),
        _step(_LOAD, _NR),
        *_return_if(_AT_LEAST, _X32, _ENOSYS),
        *_return_if(_EQUAL, architecture.clone3, _ENOSYS),  # its flags are out of a filter's reach
    ]
    for number in (*refused, *_COMMON):
        steps += _return_if(_EQUAL, number, _ENOSYS if number in _IO_URING else _EPERM)
    steps += _when(
        architecture.clone, [_step(_LOAD, _ARG0), *_return_if(_ANY_BIT, _NEW_NAMESPACES, _EPERM)]
    )
    terminal = [step for number in _TERMINAL_INPUT for step in _return_if(_EQUAL, number, _EPERM)]
    steps += _when(architecture.ioctl, [_step(_LOAD, _ARG1), *terminal])
    allowed = [step for family in _FAMILIES for step in _return_if(_EQUAL, family, _ALLOW)]
    none = _step(_RETURN, _NO_FAMILY)
    steps += _when(architecture.socket, [_step(_LOAD, _ARG0), *allowed, none])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _return_if(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, result)]


def _return_unless(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(_RETURN, result)]


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """`body` for one system call; the accumulator holds its number again afterwards."""
    body = [*body, _step(_LOAD, _NR)]
    return [_step(_EQUAL, number, 0, len(body)), *body]
