"""S9: two sessions on one host see nothing of each other, and no sandbox serves two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack, Sandboxes
from tests.doubles.hands_waiting import eventually, ready_spares

# Leaves something of a kind in every place that a process can leave something in.
LEAVE = """\
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
for place in ("/workspace", "/tmp", "/dev/shm", "/mnt/session/home", "/mnt/session/outputs",
              "/mnt/session/tool_outputs"):
    with open(place + "/secret", "w") as file:
        file.write("secret")
    os.chmod(place + "/secret", 0o666)
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0secret-name")
abstract.listen()
path = socket.socket(socket.AF_UNIX)
path.bind("/tmp/secret-socket")
path.listen()
ports = []
for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    try:
        port = socket.socket(family, socket.SOCK_STREAM)
        port.bind((host, 8000 + len(ports)))
        port.listen()
        ports.append(port)
    except OSError:
        pass
identifier = libc.shmget(4711, 4096, 0o1666)
libc.semget(4711, 1, 0o1666)
libc.msgget(4711, 0o1666)
open("/workspace/left", "w").close()
time.sleep(1000)
"""
LOOK = """
import glob, subprocess
found['files'] = [os.path.join(place, name) for top in ('/workspace', '/tmp', '/dev/shm', '/mnt',
                  '/run', '/var/tmp') for place, _, names in os.walk(top) for name in names
                  if 'secret' in name]
def connected(family, address):
    with socket.socket(family) as one:
        one.settimeout(1)
        return failed(one.connect, address)
found['reached'] = [str(address) for family, address in (
    (socket.AF_UNIX, '\\0secret-name'), (socket.AF_UNIX, '/tmp/secret-socket'),
    (socket.AF_INET, ('127.0.0.1', 8000)), (socket.AF_INET6, ('::1', 8001)))
    if connected(family, address) == 0]
found['names'] = 'secret-name' in text('/proc/net/unix')
found['shared'] = [libc.shmget(4711, 4096, 0o666), libc.semget(4711, 1, 0o666),
                   libc.msgget(4711, 0o666)]
found['commands'] = [text(f'/proc/{pid}/cmdline') for pid in pids()]
"""


async def test_nothing_of_another_session_is_seen(hands: HandsStack) -> None:
    await hands.run("write", file_path="leave.py", content=LEAVE)
    await hands.bash("python3 leave.py >log 2>&1 & while [ ! -e left ]; do :; done; cat log")
    told = await probe(hands, LOOK, session_id="sesn_2")
    assert told["files"] == []
    assert told["reached"] == []
    assert told["names"] is False
    assert told["shared"] == [-1, -1, -1]
    assert not any("leave.py" in command for command in told["commands"])
    # It was all there.
    own = await probe(hands, LOOK)
    assert len(own["files"]) >= 6
    assert own["reached"]


async def test_nothing_is_left_for_who_comes_after(hands: HandsStack) -> None:
    """A session that ends leaves nothing to the next one, not even to one with its user."""
    await hands.run("write", file_path="leave.py", content=LEAVE)
    await hands.bash("python3 leave.py >log 2>&1 & while [ ! -e left ]; do :; done; cat log")
    workspaces = hands.pool._workspaces
    volume = workspaces.find("sesn_1")
    assert volume is not None
    await hands.executor.release("sesn_1")
    await workspaces.remove(volume)
    told = await probe(hands, LOOK, session_id="sesn_2")
    assert (told["files"], told["reached"], told["shared"]) == ([], [], [-1, -1, -1])


async def test_spare_sandbox_serves_one_session_and_never_another(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    async with sandboxes.stack(tmp_path, spares=1) as hands:
        hands.pool.fill()
        await eventually(lambda: ready_spares(hands.pool))
        await hands.bash("touch /tmp/secret; sleep 1000 &")
        first = next(iter(hands.pool.live().values())).id
        await hands.executor.release("sesn_1")
        await eventually(lambda: ready_spares(hands.pool))
        shown = await hands.bash("echo /tmp/*; pgrep sleep; :", session_id="sesn_2")
        assert shown == "/tmp/*"  # noqa: S108  # nothing is there
        assert next(iter(hands.pool.live().values())).id != first


async def test_users_of_sessions_differ_on_the_host(hands: HandsStack) -> None:
    if os.geteuid() != 0:
        return  # an ordinary user has no other users to give
    users = set()
    for session_id in ("sesn_1", "sesn_2"):
        await hands.bash("touch f", session_id=session_id)
        volume = hands.pool._workspaces.find(session_id)
        assert volume is not None
        users.add((volume.root / "workspace" / "f").stat().st_uid)
    assert len(users) == 2
    assert 0 not in users


async def test_processes_of_sessions_are_different_users_on_the_host(
    sandboxes: Sandboxes, hands: HandsStack
) -> None:
    if os.geteuid() != 0 or sandboxes.runtime:
        return  # the processes of a kernel in user space are its own
    users = set()
    for session_id in ("sesn_1", "sesn_2"):
        await hands.bash("true", session_id=session_id)
        for pid in hands.processes(session_id):
            users.add((session_id, Path(f"/proc/{pid}").stat().st_uid))
    inner = {user for _, user in users if user != 0}
    assert len(inner) >= 2
    assert len({user for name, user in users if name == "sesn_1"} & inner) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_folders_of_people_and_services_are_not_there(shared: HandsStack) -> None:
    places = "/root /home /srv /var /opt /media /boot"
    found = await shared.bash(f"find {places} -mindepth 1 -type f 2>/dev/null | head -99; :")
    # An image may have system files there, the host's are none.
    assert not [path for path in found.split() if path.startswith(("/root/", "/home/", "/srv/"))]
    assert await shared.bash("echo /mnt/*") == "/mnt/memory /mnt/session /mnt/skills"
    shown = await shared.bash(
        "cat /etc/shadow /etc/machine-id 2>/dev/null; cut -d: -f1 /etc/passwd; :"
    )
    assert shown.split("\n")[-3:] == ["root", "agent", "nobody"]
    assert "$" not in shown


async def test_data_directory_of_the_host_is_not_there(hands: HandsStack, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "hands.db", Path.cwd(), Path(__file__)):
        assert (await hands.run("bash", command=f"test -e {path} && echo seen")).is_error


@pytest.mark.asyncio(loop_scope="module")
async def test_configuration_that_programs_keep_under_usr_is_not_there(shared: HandsStack) -> None:
    shown = await shared.bash("ls -A /usr/local/etc 2>/dev/null; touch /usr/local/etc/x; :")
    assert "npmrc" not in shown
    assert "Read-only file system" in shown or "Permission denied" in shown or "No such" in shown
