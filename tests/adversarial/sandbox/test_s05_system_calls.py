"""S5: system calls that have broken sandboxes before."""

from __future__ import annotations

import errno
import os

import pytest

from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64"),
]
REFUSED = {errno.EPERM, errno.ENOSYS}
# The numbers that no tool needs.
CALLS = """
ptrace=101 mount=165 umount2=166 unshare=272 setns=308 bpf=321 keyctl=250 add_key=248
request_key=249 userfaultfd=323 fsopen=430 io_uring_setup=425 io_uring_enter=426
io_uring_register=427 clone3=435 perf_event_open=298 process_vm_readv=310 process_vm_writev=311
open_by_handle_at=304 name_to_handle_at=303 pidfd_getfd=438 move_mount=429 open_tree=428
mount_setattr=442 pivot_root=155 chroot=161 kcmp=312 init_module=175 finit_module=313
kexec_load=246 kexec_file_load=320 reboot=169 swapon=167 swapoff=168 syslog=103 acct=163
quotactl=179 iopl=172 ioperm=173 settimeofday=164 clock_settime=227 fanotify_init=300
process_madvise=440 lookup_dcookie=212
"""
# Family, kind and protocol.
FAMILIES = """
netlink=16:3:0 packet=17:3:0 vsock=40:1:0 alg=38:5:0 raw=2:3:1 raw6=10:3:58 bluetooth=31:3:1
can=29:3:1 xdp=44:3:0 tipc=30:1:0 key=15:3:2 rds=21:5:0
"""
# The flags of unshare and clone.
NAMESPACES = """
user=268435456 mount=131072 pid=536870912 net=1073741824 ipc=134217728 uts=67108864
cgroup=33554432
"""


def pairs(table: str) -> dict[str, list[int]]:
    """What a table says of each name."""
    named = (pair.split("=") for pair in table.split())
    return {name: [int(number) for number in numbers.split(":")] for name, numbers in named}


async def test_calls_that_no_tool_needs_are_refused(shared: HandsStack) -> None:
    told = await probe(
        shared,
        f"for name, (number,) in {pairs(CALLS)}.items():\n"
        "    found[name] = call(number, 0, 0, 0, 0, 0)\n",
    )
    assert {name: error for name, error in told.items() if error not in REFUSED} == {}


async def test_rings_look_as_if_the_kernel_had_none(shared: HandsStack) -> None:
    """So that programs that would use them do without."""
    told = await probe(
        shared,
        "parameters = ctypes.create_string_buffer(120)\n"
        "found['setup'] = call(425, 8, parameters)\n",
    )
    assert told["setup"] == errno.ENOSYS


async def test_no_namespace_can_be_made_in_any_way(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "class Arguments(ctypes.Structure):\n"
        "    _fields_ = [(name, ctypes.c_uint64) for name in ('flags', 'pidfd', 'child',\n"
        "        'parent', 'exit', 'stack', 'size', 'tls', 'tid', 'tids', 'group')]\n"
        f"for name, (flag,) in {pairs(NAMESPACES)}.items():\n"
        "    found['unshare ' + name] = call(272, flag)\n"
        "    found['clone ' + name] = call(56, flag | 17, 0, 0, 0, 0)\n"
        "    given = Arguments(flags=flag, exit=17)\n"
        "    found['clone3 ' + name] = call(435, ctypes.byref(given), ctypes.sizeof(given))\n"
        "for name in ('user', 'mnt', 'net', 'pid'):\n"
        "    try:\n"
        "        fd = os.open('/proc/1/ns/' + name, os.O_RDONLY)\n"
        "    except OSError:\n"
        "        continue\n"
        "    found['setns ' + name] = call(308, fd, 0)\n",
    )
    assert {name: error for name, error in told.items() if error not in REFUSED} == {}


async def test_sockets_are_of_the_internet_or_local(shared: HandsStack) -> None:
    told = await probe(
        shared,
        f"for name, given in {pairs(FAMILIES)}.items():\n"
        "    found[name] = failed(socket.socket, *given)\n"
        "found['usual'] = [failed(socket.socket, family, kind)\n"
        "    for family in (1, 2, 10) for kind in (1, 2)]\n",
    )
    usual = told.pop("usual")
    assert usual[:4] == [0, 0, 0, 0]
    assert {name: error for name, error in told.items() if error == 0} == {}


async def test_numbers_of_other_architectures_lead_nowhere(shared: HandsStack) -> None:
    told = await probe(shared, "found['x32'] = call(0x40000000 | 101, 0, 0, 0, 0)\n")
    assert told["x32"] in REFUSED
