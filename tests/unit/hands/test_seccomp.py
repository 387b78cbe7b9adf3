"""The filter is run here as the kernel would run it."""

from __future__ import annotations

import errno
import struct

import pytest

from services.hands.backends.seccomp import of_holder, program

ALLOW = 0x7FFF0000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(
    machine: str, number: int, *arguments: int, arch: int | None = None, holder: bool = False
) -> int | str:
    """What the filter answers: an errno, or "allow"."""
    code = of_holder(machine) if holder else program(machine)
    assert code is not None
    data = struct.pack("=iIQ6Q", number, arch or AUDIT[machine], 0, *(*arguments, *[0] * 6)[:6])
    steps = list(struct.iter_unpack("=HBBI", code))
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = steps[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return "allow" if value == ALLOW else value & 0xFFFF
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


NUMBERS = {
    "x86_64": {
        "read": 0, "openat": 257, "execve": 59, "clone": 56, "socket": 41, "ioctl": 16,
        "mount": 165, "unshare": 272, "setns": 308, "ptrace": 101, "bpf": 321, "keyctl": 250,
        "userfaultfd": 323, "perf_event_open": 298, "process_vm_readv": 310, "chroot": 161,
        "pivot_root": 155, "open_by_handle_at": 304,
    },
    "aarch64": {
        "read": 63, "openat": 56, "execve": 221, "clone": 220, "socket": 198, "ioctl": 29,
        "mount": 40, "unshare": 97, "setns": 268, "ptrace": 117, "bpf": 280, "keyctl": 219,
        "userfaultfd": 282, "perf_event_open": 241, "process_vm_readv": 270, "chroot": 51,
        "pivot_root": 41, "open_by_handle_at": 265,
    },
}  # fmt: skip
both = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


@both
def test_holder_may_not_change_what_it_ends_with(machine: str) -> None:
    prctl = {"x86_64": 157, "aarch64": 167}[machine]
    assert verdict(machine, prctl, 1, 0) == "allow"
    assert verdict(machine, prctl, 1, 0, holder=True) == errno.EPERM
    assert verdict(machine, NUMBERS[machine]["read"], holder=True) == "allow"
    assert verdict(machine, NUMBERS[machine]["mount"], holder=True) == errno.EPERM


@both
def test_what_programs_need_is_allowed(machine: str) -> None:
    for name in ("read", "openat", "execve"):
        assert verdict(machine, NUMBERS[machine][name]) == "allow"
    assert verdict(machine, NUMBERS[machine]["clone"], 0x01200011) == "allow"
    assert verdict(machine, NUMBERS[machine]["clone"], 0x003D0F00) == "allow"


@both
@pytest.mark.parametrize(
    "name", [name for name in NUMBERS["x86_64"] if name not in
             {"read", "openat", "execve", "clone", "socket", "ioctl"}]
)  # fmt: skip
def test_what_breaks_sandboxes_is_refused(machine: str, name: str) -> None:
    assert verdict(machine, NUMBERS[machine][name]) == errno.EPERM


@both
@pytest.mark.parametrize("flag", [0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x02000000])
def test_new_namespaces_are_refused(machine: str, flag: int) -> None:
    assert verdict(machine, NUMBERS[machine]["clone"], flag | 17) == errno.EPERM
    assert verdict(machine, 435) == errno.ENOSYS  # clone3


@both
@pytest.mark.parametrize(
    ("family", "answer"),
    [
        *((family, "allow") for family in (1, 2, 10)),
        *((family, errno.EAFNOSUPPORT) for family in (16, 17, 38, 40, 44)),
    ],
)
def test_sockets_are_local_or_internet(machine: str, family: int, answer: int | str) -> None:
    assert verdict(machine, NUMBERS[machine]["socket"], family) == answer


@both
def test_terminal_input_is_not_forged(machine: str) -> None:
    assert verdict(machine, NUMBERS[machine]["ioctl"], 0, 0x5412) == errno.EPERM
    assert verdict(machine, NUMBERS[machine]["ioctl"], 0, 0x5413) == "allow"


@both
def test_io_uring_is_not_there(machine: str) -> None:
    assert [verdict(machine, number) for number in (425, 426, 427)] == [errno.ENOSYS] * 3


def test_other_ways_into_the_kernel_are_not_there() -> None:
    assert verdict("x86_64", 0x40000000 + 165) == errno.ENOSYS
    assert verdict("x86_64", 4, arch=0x40000003) == errno.ENOSYS


def test_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    assert program("riscv64") is None
