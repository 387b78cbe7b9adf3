"""S7: set-user-id, file capabilities, devices, /sys, core_pattern, release_agent."""

from __future__ import annotations

import errno

import pytest

from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack, Sandboxes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_privileges_are_none_and_cannot_grow(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found.update(line.split(':', 1) for line in text('/proc/self/status').splitlines())\n"
        "found['root'] = [failed(os.setuid, 0), failed(os.setgid, 0), failed(os.setgroups, [0])]\n",
    )
    assert {told[name].strip() for name in told if name.startswith("Cap")} == {"0" * 16}
    assert told.get("NoNewPrivs", "1").strip() == "1"  # older kernels in user space do not say
    assert told["Seccomp"].strip() == "2"
    assert set(told["root"]) <= {errno.EPERM, errno.EINVAL}
    user = await shared.bash("id -u")
    assert set(told["Uid"].split()) == {user}
    assert user != "0"
    for command in (
        "unshare -U",
        "unshare -m",
        "su -c",
        "mount -t tmpfs x /tmp; setpriv --reuid 0",
    ):
        assert (await shared.run("bash", command=f"{command} true </dev/null")).is_error


async def test_set_user_id_programs_have_no_effect(shared: HandsStack) -> None:
    await shared.bash("for d in /tmp /workspace; do cp /bin/bash $d/b; chmod 6755 $d/b; done")
    user = await shared.bash("id -u; id -g")
    for place in ("/tmp", "/workspace"):  # noqa: S108  # the sandbox's own
        assert await shared.bash(f"{place}/b -p -c 'id -u; id -g'") == user
    find = "find /usr /bin -xdev -perm -4000 -type f 2>/dev/null | head -5; :"
    programs = await shared.bash(find)
    for program in programs.split():
        # Whatever they are: no bit of theirs counts.
        shown = await shared.bash(
            f"timeout 2 {program} --help >/dev/null 2>&1 </dev/null & p=$!; "
            "grep -h ^CapEff /proc/$p/status 2>/dev/null; wait $p; :"
        )
        assert shown in {"", "CapEff:\t" + "0" * 16}


async def test_file_capabilities_cannot_be_set(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "import struct\n"
        "open('/tmp/c', 'w').close(); open('/workspace/c', 'w').close()\n"
        "value = struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0)\n"
        "for path in ('/tmp/c', '/workspace/c'):\n"
        "    found[path] = failed(os.setxattr, path, 'security.capability', value)\n"
        "    found['trusted ' + path] = failed(os.setxattr, path, 'trusted.x', b'x')\n",
    )
    assert 0 not in told.values()


async def test_devices_of_the_host_are_not_there_and_none_can_be_made(
    everywhere: Sandboxes, shared: HandsStack
) -> None:
    told = await probe(
        shared,
        "import stat\n"
        "found['devices'] = sorted(os.listdir('/dev'))\n"
        "def made(path, kind):\n"
        "    os.mknod(path, kind | 0o666, os.makedev(1, 1))\n"
        "    os.close(os.open(path, os.O_RDWR))\n"
        "found['made'] = [failed(made, f'{place}/n{kind}', kind)\n"
        "    for place in ('/tmp', '/workspace', '/dev/shm')\n"
        "    for kind in (stat.S_IFBLK, stat.S_IFCHR)]\n"
        "found['opened'] = {path: failed(os.open, path, os.O_RDWR) for path in ('/dev/mem',\n"
        "    '/dev/kmem', '/dev/port', '/dev/kmsg', '/dev/vda', '/dev/sda', '/dev/kvm',\n"
        "    '/dev/fuse', '/dev/net/tun', '/dev/console', '/proc/kcore', '/proc/kmsg')}\n",
    )
    assert set(told["devices"]) <= {
        *("console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm"),
        *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
        *(("fuse", "net") if everywhere.runtime else ()),  # of a kernel in user space, its own
    }
    assert 0 not in told["made"]
    opened = {path for path, error in told["opened"].items() if error == 0}
    if everywhere.runtime:
        opened -= {"/dev/fuse", "/dev/net/tun"}
    assert opened <= {"/proc/kcore"}
    if opened:  # what stands in for a masked file is the empty device
        assert await shared.bash("head -c 9 /proc/kcore | wc -c") == "0"


async def test_settings_of_the_kernel_cannot_be_written(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "import glob\n"
        "places = ['/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger',\n"
        "    '/proc/sys/vm/drop_caches', '/proc/sys/vm/overcommit_memory',\n"
        "    '/proc/sys/kernel/hostname', '/proc/sys/kernel/modprobe',\n"
        "    '/proc/sys/fs/binfmt_misc/register', '/proc/sys/net/ipv4/ip_forward',\n"
        "    '/proc/irq/default_smp_affinity', '/proc/mtrr', '/proc/acpi/wakeup',\n"
        "    '/sys/kernel/uevent_helper', '/sys/kernel/mm/ksm/run', '/sys/power/state',\n"
        "    '/sys/fs/cgroup/release_agent', '/sys/fs/cgroup/cgroup.procs', '/proc/self/uid_map',\n"
        "    *glob.glob('/sys/fs/cgroup/*/release_agent'), *glob.glob('/sys/fs/cgroup/*/tasks'),\n"
        "    *glob.glob('/sys/fs/cgroup/*/devices.allow'),\n"
        "    *glob.glob('/sys/block/*/queue/nr_requests')]\n"
        "def write(path):\n"
        "    fd = os.open(path, os.O_WRONLY)\n"
        "    try:\n"
        "        os.write(fd, b'0')\n"
        "    finally:\n"
        "        os.close(fd)\n"
        "found['written'] = [path for path in places if failed(write, path) == 0\n"
        "    and os.stat(path).st_rdev != os.makedev(1, 3)]\n"
        "libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]\n"
        "found['mounted'] = [kind for kind in ('cgroup', 'cgroup2', 'proc', 'sysfs', 'tmpfs',\n"
        "    'debugfs', 'binfmt_misc')\n"
        "    if libc.mount(b'x', b'/tmp', kind.encode(), 0, None) == 0]\n",
    )
    assert told == {"written": [], "mounted": []}


async def test_what_is_masked_is_masked_by_the_empty_device(shared: HandsStack) -> None:
    """As in the CVEs of 2025 of runc, whose masks could be pointed elsewhere."""
    told = await probe(
        shared,
        "for name in ('keys', 'timer_list', 'cmdline', 'key-users', 'interrupts'):\n"
        "    path = '/proc/' + name\n"
        "    if os.path.exists(path):\n"
        "        status = os.stat(path)\n"
        "        found[name] = status.st_rdev == os.makedev(1, 3) or not text(path)\n"
        "found['null'] = os.stat('/dev/null').st_rdev == os.makedev(1, 3)\n",
    )
    told.pop("cmdline", None)  # a kernel in user space has its own
    assert set(told.values()) == {True}


async def test_core_files_are_not_written(shared: HandsStack) -> None:
    assert await shared.bash("ulimit -c; ulimit -Hc") == "0\n0"
    assert (await shared.run("bash", command="ulimit -c unlimited")).is_error
