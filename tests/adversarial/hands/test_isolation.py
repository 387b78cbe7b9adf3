"""Nothing of the host is in reach (CASES S1 to S5, S7 to S10)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.doubles.hands_stack import HandsStack, Sandboxes, running, text

PROBE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return 0 if result >= 0 else ctypes.get_errno()
"""


async def python(hands: HandsStack, program: str) -> str:
    await hands.run("write", file_path="/tmp/probe.py", content=PROBE + program)  # noqa: S108
    return await hands.bash("python3 /tmp/probe.py")


async def test_environment_is_the_sandboxes_own(
    sandboxes: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_API_KEY", "secret-of-the-host")
    async with sandboxes.stack(tmp_path) as hands:
        shown = await hands.bash("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    names = {line.partition("=")[0] for line in shown.split("\n") if "=" in line}
    assert "secret-of-the-host" not in shown
    assert names <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PAGER", "GIT_PAGER"),
        *("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"),
    }


async def test_only_its_own_processes_are_seen(hands: HandsStack) -> None:
    shown = await hands.bash("cd /proc; echo [0-9]*; tr '\\0' ' ' </proc/1/cmdline")
    numbers, command = shown.split("\n")
    assert len(numbers.split()) <= 5
    assert "--bind" not in command
    assert "workspaces" not in command


async def test_folders_of_people_and_services_are_not_there(hands: HandsStack) -> None:
    places = "/root /home /srv /var /opt /media /boot"
    assert await hands.bash(f"find {places} -mindepth 1 2>/dev/null; :") == ""
    assert await hands.bash("ls /mnt") == "session"
    shown = await hands.bash(
        "cat /etc/shadow /etc/machine-id /etc/hostname; cut -d: -f1 /etc/passwd; :"
    )
    assert shown.split("\n")[2:] == ["sandbox", "root", "agent", "nobody"]


async def test_data_directory_of_the_host_is_not_there(hands: HandsStack, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "hands.db", Path.cwd(), Path(__file__)):
        assert (await hands.run("bash", command=f"ls {path}")).is_error


async def test_listeners_of_the_host_are_out_of_reach(hands: HandsStack) -> None:
    reached = asyncio.Event()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(greet, "0.0.0.0", 0)  # noqa: S104  # every way in is open
    port = server.sockets[0].getsockname()[1]
    async with server:
        for host in ("127.0.0.1", "::1", "10.0.2.2", "169.254.169.254"):
            command = f"exec 3<>/dev/tcp/{host}/{port}"
            assert (await hands.run("bash", command=command, timeout_ms=3000)).is_error
    assert not reached.is_set()
    assert await hands.bash("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"
    assert (await hands.run("bash", command="getent hosts example.com")).is_error


async def test_sockets_of_the_host_are_out_of_reach(hands: HandsStack) -> None:
    shown = await python(
        hands,
        "for place in ('/var/run/docker.sock', '/run/docker.sock', '/tmp/.X11-unix/X0'):\n"
        "    print(os.path.exists(place))\n"
        "print(open('/proc/net/unix').read().count('@'))\n",
    )
    assert shown == "False\nFalse\nFalse\n0"


async def test_commands_have_three_descriptors(hands: HandsStack) -> None:
    shown = await hands.bash("python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'")
    assert shown == "['0', '1', '2', '3']"  # the last is the listing's own
    places = await hands.bash("readlink /proc/self/fd/0; readlink /proc/$$/fd/*; :")
    assert not [line for line in places.split("\n") if "socket" in line]


async def test_control_channel_cannot_be_opened_again(hands: HandsStack) -> None:
    for pid in ("1", "$PPID"):
        for descriptor in (0, 1, 2):
            result = await hands.run("bash", command=f"echo x >/proc/{pid}/fd/{descriptor}")
            assert result.is_error
    assert await hands.bash("echo fine") == "fine"


async def test_kernel_is_not_there_to_be_played_with(hands: HandsStack) -> None:
    if os.uname().machine != "x86_64":
        pytest.fail("the numbers of this test are those of x86_64")
    shown = await python(
        hands,
        "calls = dict(ptrace=101, mount=165, unshare=272, setns=308, bpf=321, keyctl=250,\n"
        "    userfaultfd=323, io_uring_setup=425, clone3=435, perf_event_open=298,\n"
        "    process_vm_readv=310, open_by_handle_at=304, add_key=248, pidfd_getfd=438,\n"
        "    fsopen=430, pivot_root=155, name_to_handle_at=303)\n"
        "print([name for name, number in calls.items() if call(number, 0, 0, 0, 0, 0)\n"
        "       not in (1, 38)])\n"
        "print(call(56, 0x10000000 | 17, 0, 0, 0, 0))\n"
        "for family, kind, way in ((16, 3, 0), (17, 3, 0), (40, 1, 0), (38, 5, 0), (2, 3, 1),\n"
        "    (10, 3, 58)):\n"
        "    try:\n"
        "        socket.socket(family, kind, way)\n"
        "        print('made', family)\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n",
    )
    assert shown.split("\n") == ["[]", "1", "1", "1", "1", "1", "1", "1"]


async def test_privileges_are_none_and_cannot_grow(hands: HandsStack) -> None:
    shown = await hands.bash("grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid)' /proc/self/status")
    facts = dict(line.split(":\t", 1) for line in shown.split("\n"))
    assert {facts[name] for name in facts if name.startswith("Cap")} == {"0" * 16}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    user = await hands.bash("id -u")
    assert set(facts["Uid"].split()) == {user}
    assert user != "0"
    for command in ("unshare -U true", "unshare -m true", "su -c id", "mount -t tmpfs x /tmp"):
        assert (await hands.run("bash", command=command)).is_error


async def test_settings_of_the_kernel_cannot_be_written(hands: HandsStack) -> None:
    places = "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/overcommit_memory"
    shown = await hands.bash(f"for p in {places}; do (echo x >$p) 2>/dev/null && echo $p; done; :")
    assert shown == ""
    assert (await hands.run("bash", command="mknod /tmp/d b 8 0")).is_error


async def test_set_user_id_programs_have_no_effect(hands: HandsStack) -> None:
    await hands.bash("cp /bin/bash /tmp/b; chmod 4755 /tmp/b")
    assert await hands.bash("/tmp/b -p -c 'id -u'") == await hands.bash("id -u")  # noqa: S108
    places = ("/workspace", "/tmp") if hands.backend.name == "local" else ("/tmp",)  # noqa: S108
    for place in places:  # and nothing can add to its rights anyway
        assert "nosuid" in await hands.bash(f"grep ' {place} ' /proc/self/mounts")


async def test_file_tools_follow_no_link_out(hands: HandsStack) -> None:
    await hands.bash("ln -s /etc/passwd a; ln -s / b; ln -s ../../proc/1/environ c")
    for path in ("a", "b/etc/passwd", "c", "../etc/passwd", "/workspace/../etc/passwd"):
        for tool, more in (("read", {}), ("write", {"content": "x"})):
            result = await hands.run(tool, file_path=path, **more)
            assert "outside the session's" in text(result), path
    assert text(await hands.run("grep", pattern="root")) == "no matches"
    assert text(await hands.run("glob", pattern="b/etc/*")) == "no matches"


async def test_sessions_do_not_see_each_other(hands: HandsStack) -> None:
    await hands.bash(
        "for d in /workspace /tmp /dev/shm /mnt/session/*; do echo s >$d/secret; done; :"
    )
    await hands.bash("sleep 1000 & python3 -m http.server 8000 >/dev/null 2>&1 &")
    other = await hands.bash(
        "find / -xdev -name secret 2>/dev/null; find /workspace /tmp /dev/shm /mnt -name secret;"
        "pgrep sleep; exec 3<>/dev/tcp/127.0.0.1/8000 && echo reached; :",
        session_id="sesn_2",
    )
    assert "secret" not in other
    assert "reached" not in other


async def test_users_of_sessions_differ_on_the_host(hands: HandsStack) -> None:
    if os.geteuid() != 0:
        return  # an ordinary user has no other users to give
    users = set()
    for session_id in ("sesn_1", "sesn_2"):
        await hands.bash("touch f", session_id=session_id)
        for pid in hands.processes(session_id):
            users.add((session_id, Path(f"/proc/{pid}").stat().st_uid))
    inner = {user for _, user in users if user != 0}
    assert len(inner) >= 2
    assert len({user for name, user in users if name == "sesn_1"} & inner) == 1


async def test_daemons_end_with_the_sandbox(hands: HandsStack) -> None:
    await hands.run("write", file_path="d.py", content=(
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "for fd in range(3): os.close(fd)\n"
        "time.sleep(1000)\n"
    ))  # fmt: skip
    await hands.bash("python3 d.py")
    processes = hands.processes()
    await hands.executor.release("sesn_1")
    assert not any(map(running, processes))


async def test_configuration_that_programs_keep_under_usr_is_not_there(hands: HandsStack) -> None:
    shown = await hands.bash("ls -A /usr/local/etc 2>/dev/null; touch /usr/local/etc/x; :")
    assert "npmrc" not in shown
    assert "Read-only file system" in shown or "Permission denied" in shown or "No such" in shown
