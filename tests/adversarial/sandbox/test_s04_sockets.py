"""S4: sockets of the host, abstract names, inherited descriptors, descriptors that are passed.

These sandboxes have no way out. What one that has it may reach, the one socket and nothing else, is
tried in `tests/adversarial/egress/test_e01_no_other_way.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from services.hands.backends import agent_files
from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack, Sandboxes
from tests.doubles.hands_waiting import eventually

# An agent that sends descriptors along with whatever it says, and a great many of them.
PASSING = """\
import os, socket, sys, time
stream = socket.socket(fileno=os.dup(1))
body = b'{"type":"ready"}'
descriptor = os.open("/usr", os.O_RDONLY)
for _ in range(200):
    try:
        socket.send_fds(stream, [b""], [descriptor] * 8)
    except OSError:
        break
socket.send_fds(stream, [len(body).to_bytes(4, "big") + body], [descriptor] * 8)
os.read(0, 65536)
body = b'{"type":"serving"}'
socket.send_fds(stream, [len(body).to_bytes(4, "big") + body], [descriptor] * 8)
time.sleep(1000)
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_sockets_of_the_host_are_out_of_reach(
    shared: HandsStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"drover-test-{os.getpid()}"
    path = tmp_path_factory.mktemp("s") / "s"
    reached = asyncio.Event()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    named = await asyncio.start_unix_server(greet, path)
    path.chmod(0o777)
    abstract = await asyncio.start_unix_server(greet, f"\0{name}")
    async with named, abstract:
        told = await probe(
            shared,
            f"for address in ({str(path)!r}, '\\0{name}', '/var/run/docker.sock',\n"
            "        '/run/docker.sock', '/run/containerd/containerd.sock',\n"
            "        '/run/systemd/private', '/run/podman/podman.sock', '/tmp/.X11-unix/X0',\n"
            "        '/run/dbus/system_bus_socket'):\n"
            "    with socket.socket(socket.AF_UNIX) as one:\n"
            "        found[address] = failed(one.connect, address)\n",
        )
        assert len(told) == 9
        assert 0 not in told.values()
        assert not reached.is_set()


@pytest.mark.asyncio(loop_scope="module")
async def test_abstract_names_of_the_host_are_not_listed(shared: HandsStack) -> None:
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(f"\0drover-listed-{os.getpid()}")
        listener.listen()
        told = await probe(shared, "found['unix'] = text('/proc/net/unix')\n")
    assert "drover-listed" not in told["unix"]


@pytest.mark.asyncio(loop_scope="module")
async def test_commands_have_three_descriptors(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found['own'] = sorted(int(name) for name in os.listdir('/proc/self/fd'))\n"
        "found['shell'] = [link(f'/proc/{os.getppid()}/fd/{fd}') for fd in range(64)]\n",
    )
    assert told["own"] == [0, 1, 2, 3]  # the last is the listing's own
    assert not [place for place in told["shell"] if "socket" in place]


async def test_nothing_that_the_hands_have_open_is_inherited(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host", encoding="utf-8")
    opened = os.open(secret, os.O_RDONLY)
    os.set_inheritable(opened, True)
    try:
        async with sandboxes.stack(tmp_path / "stack") as hands:
            told = await probe(
                hands,
                "found['places'] = [link(f'/proc/{pid}/fd/{fd}') for pid in pids()\n"
                "                   for fd in range(256)]\n"
                "found['secret'] = [place for place in found['places'] if 'secret' in place]\n",
            )
    finally:
        os.close(opened)
    assert told["secret"] == []
    for place in filter(None, told["places"]):
        kinds = ("/dev/", "/run/shell/", "/proc", "/tmp/")  # noqa: S108  # the sandbox's own
        assert place.startswith(kinds) or ":[" in place, place


async def test_control_channel_cannot_be_opened_again(
    sandboxes: Sandboxes, hands: HandsStack
) -> None:
    for pid in ("1", "$PPID"):
        for descriptor in (0, 1, 2):
            result = await hands.run("bash", command=f"echo x >/proc/{pid}/fd/{descriptor}")
            # A kernel in user space may let it: the sandbox then ends, for it breaks the protocol.
            assert result.is_error or sandboxes.runtime
    assert (await hands.bash("echo fine")).startswith("fine")


async def test_descriptors_that_an_agent_sends_are_dropped(
    sandboxes: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_files, "_MAIN", PASSING)
    async with sandboxes.stack(tmp_path) as hands:
        before = _open_descriptors()
        running = asyncio.create_task(hands.run("bash", command="true", timeout_ms=600))
        await eventually(lambda: running.done() or hands.pool.live())
        await running
        await hands.executor.release("sesn_1")
        assert len(_open_descriptors() - before) < 16
        assert not [place for place in _open_descriptors() if place == "/usr"]


def _open_descriptors() -> set[str]:
    places = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            places.add(str(entry.readlink()))
        except OSError:
            continue
    return places
