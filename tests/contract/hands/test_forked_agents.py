"""Agents are forked into local sandboxes from a process that is warm, and are no less confined."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.local import LocalBackend
from services.hands.backends.process import Handle, children
from services.hands.backends.zygote import Zygote
from tests.doubles.hands_stack import HandsStack, Sandboxes, hands_stack, running, text
from tests.doubles.hands_waiting import eventually

_SPACES = ("user", "pid", "mnt", "ipc", "uts", "net", "cgroup")
_STREAMS = {"0", "1", "2"}
_MANY = 1100
_PAUSE = 34
# Has the first process call prctl(PR_SET_PDEATHSIG, 0), and then pause() for ever.
_TAKE = """\
import os, time
def waits():
    with open("/proc/1/syscall") as file:
        return file.read()
code = bytes.fromhex("b89d000000bf0100000031f60f05" "b8220000000f05ebf7")
memory = os.open("/proc/1/mem", os.O_RDWR)
os.pwrite(memory, code, int(waits().split()[-1], 16) - 2)
os.kill(1, 17)
while not waits().startswith("34 "):
    time.sleep(0.01)
print(waits())
"""

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into others' processes")


@pytest.fixture
def sandboxes() -> Sandboxes:
    return Sandboxes("local")


def nursery(hands: HandsStack) -> Zygote:
    found = hands.backend._spawner.nursery
    assert isinstance(found, Zygote)
    return found


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def spaces(pid: int | str) -> dict[str, str]:
    return {name: str(Path(f"/proc/{pid}/ns/{name}").readlink()) for name in _SPACES}


@root
async def test_every_process_of_a_sandbox_is_confined_alike(hands: HandsStack) -> None:
    await hands.bash("sleep 1000 & cat /proc/self/status")
    sandbox = hands.pool._seats["sesn_1"].hand.result()._sandbox
    inside = sorted(hands.processes() - {sandbox._process.pid})
    assert len(inside) == 4  # the first one, the agent, the shell, the sleep
    own, owner = spaces("self"), hands.pool._workspaces.find("sesn_1").owner
    for pid in inside:
        said = status(pid)
        assert {said[name] for name in said if name.startswith("Cap")} == {"0" * 16}
        assert (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")
        assert {*said["Uid"].split(), *said["Gid"].split()} == {str(owner)}
        assert said["Groups"] == ""
        assert spaces(pid) == spaces(inside[0])
        assert not set(spaces(pid).values()) & set(own.values())
        seen = {place.name for place in Path(f"/proc/{pid}/root").iterdir()}
        assert seen == set((await hands.bash("ls /")).split("\n"))


@root
async def test_agent_has_nothing_of_what_it_was_forked_from(hands: HandsStack) -> None:
    await hands.bash("true")
    (agent,) = _agents(hands)
    opened = {one.name: str(one.readlink()) for one in Path(f"/proc/{agent}/fd").iterdir()}
    assert len({opened[name] for name in _STREAMS}) == 1
    for name in opened.keys() - _STREAMS:
        assert opened[name].startswith(("/run/shell/", "pipe:", "anon_inode:[pidfd]")), opened
    assert (
        Path(f"/proc/{agent}/cmdline").read_bytes()
        == Path(f"/proc/{nursery(hands).pid}/cmdline").read_bytes()
    )
    assert Path(f"/proc/{agent}/environ").read_bytes() == b"LANG=C.UTF-8\0"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many as this process may have where nothing was set: new ones have high numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * _MANY:
        pytest.skip("this process may not have as many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * _MANY), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(_MANY)]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
async def test_commands_have_no_descriptor_of_hands_that_have_many(tmp_path: Path) -> None:
    async with hands_stack(tmp_path) as hands:
        shown = await hands.bash("for one in /proc/self/fd/*; do echo ${one##*/}; done")
        assert max(map(int, shown.split())) < _MANY
        for pid in _agents(hands) if os.geteuid() == 0 else ():
            opened = [int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()]
            assert max(opened) < _MANY


async def test_commands_cannot_look_into_their_agent(hands: HandsStack) -> None:
    for look in ("cat {}/mem", "cat {}/environ", "cat {}/maps", "ls {}/fd", "echo x >{}/fd/1"):
        result = await hands.run("bash", command=look.format("/proc/$PPID"))
        assert result.is_error, look
        assert "Permission denied" in text(result), look
    for link in ("exe", "root", "cwd"):
        assert (await hands.run("bash", command=f"readlink /proc/$PPID/{link}")).is_error, link


async def test_nothing_of_this_machine_is_in_its_command_line(
    hands: HandsStack, tmp_path: Path
) -> None:
    shown = await hands.bash("cat /proc/*/cmdline | tr '\\0' ' '")
    assert "-I -S -" in shown
    assert str(tmp_path) not in shown


async def test_processes_that_nobody_waits_for_are_cleared_away(hands: HandsStack) -> None:
    await hands.bash("for i in $(seq 40); do (sleep 0.0$((i % 9)) &); done")
    # One that has just ended is there for a moment yet, and for good if nobody clears it away.
    await hands.bash("while pgrep sleep >/dev/null; do sleep 0.02; done")
    assert "defunct" not in await hands.bash("ps -e")
    assert await hands.bash("sleep 0.05; jobs") == ""


async def test_first_process_cannot_be_ended_from_inside(hands: HandsStack) -> None:
    await hands.bash("touch /tmp/kept; for n in $(seq 64); do kill -$n 1; done 2>/dev/null; :")
    assert await hands.bash("echo /tmp/*") == "/tmp/kept"  # noqa: S108  # its own


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the attack is in its machine's code")
async def test_first_process_that_is_taken_over_ends_with_its_bubblewrap(
    hands: HandsStack,
) -> None:
    await hands.run("write", file_path="take.py", content=_TAKE)
    assert (await hands.bash("python3 take.py")).startswith(f"{_PAUSE} ")
    sandbox = hands.pool._seats["sesn_1"].hand.result()._sandbox
    (first,) = children(sandbox._process.pid)
    os.kill(sandbox._process.pid, signal.SIGKILL)  # as the kernel does when the hands die
    await eventually(lambda: not running(first))


async def test_agents_go_on_without_what_they_were_forked_from(hands: HandsStack) -> None:
    await hands.bash("x=1; sleep 1000 &")
    before = nursery(hands).pid
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: not running(before))
    assert await hands.bash("echo $x") == "1"
    assert await hands.bash("echo new", session_id="sesn_2") == "new"
    assert nursery(hands).pid not in {0, before}
    await hands.executor.release("sesn_1")


async def test_one_that_hangs_is_replaced(
    hands: HandsStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hands.bash("true", session_id="sesn_2")
    monkeypatch.setattr("services.hands.hand._START_SECONDS", 0.5)
    before = nursery(hands).pid
    os.kill(before, signal.SIGSTOP)
    result = await hands.run("bash", command="true")
    assert "the sandbox was not ready within 0.5 s" in text(result)
    monkeypatch.undo()
    assert await hands.bash("echo up") == "up"
    assert nursery(hands).pid != before
    assert not running(before)


async def test_what_an_agent_cannot_do_is_told(
    hands: HandsStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = Zygote.fork

    async def lost(self: Zygote, user: int | None, first: Handle, *more: Any) -> socket.socket:
        first.kill()  # nobody can enter any more
        await first.ended()
        return await fork(self, user, first, *more)

    monkeypatch.setattr(Zygote, "fork", lost)
    result = await hands.run("bash", command="true")
    assert "the sandbox did not start: " in text(result) or "bubblewrap did not start" in text(
        result
    )
    monkeypatch.undo()
    assert await hands.bash("echo up") == "up"


@pytest.mark.parametrize("step", ["group", "filter"])
async def test_agent_that_cannot_be_confined_does_not_come_up(
    hands: HandsStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    fork = Zygote.fork
    (tmp_path / "cgroup.procs").symlink_to("/dev/full")

    async def unconfined(
        self: Zygote, user: int | None, first: Handle, groups: Any = (), arguments: Any = ()
    ) -> socket.socket:
        return await fork(self, user, first, (*groups, tmp_path), arguments)

    if step == "group":
        monkeypatch.setattr(Zygote, "fork", unconfined)
    else:
        nursery(hands).replace()
        monkeypatch.setattr(nursery(hands), "_filter", b"no filter")
    result = await hands.run("bash", command="true")
    told = {"group": "No space left on device", "filter": "prctl 22: Invalid argument"}[step]
    assert told in text(result)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EMFILE])
async def test_where_none_can_be_forked_bubblewrap_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Zygote, "fork", fail)
    backend = LocalBackend(tmp_path / "hands")
    async with hands_stack(tmp_path, backend=backend) as hands:
        assert backend._spawner is not None
        assert backend._spawner.nursery is None
        assert not [
            why for kind, why in backend.protections.items() if kind == "namespaces" and why
        ]
        shown = await hands.bash("cat /proc/$PPID/cmdline | tr '\\0' ' '; sleep 1000 &")
        assert "/run/agent/main" in shown


async def test_none_is_forked_where_nobody_would_clear_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.backends.local._adopts_orphans", lambda: True)
    async with hands_stack(tmp_path) as hands:
        assert hands.backend._spawner.nursery is None
        assert await hands.bash("echo up") == "up"


@root
async def test_sandbox_ends_without_what_its_agent_was_forked_from(hands: HandsStack) -> None:
    await hands.bash("sleep 1000 &")
    processes = hands.processes()
    os.kill(nursery(hands).pid, signal.SIGKILL)
    await hands.executor.release("sesn_1")
    await eventually(lambda: not any(map(running, processes)))


async def test_interrupt_from_a_terminal_is_for_the_service_alone(hands: HandsStack) -> None:
    await hands.bash("true")
    assert os.getsid(nursery(hands).pid) == nursery(hands).pid


async def test_all_ends_with_the_service(tmp_path: Path) -> None:
    async with hands_stack(tmp_path) as hands:
        await hands.bash("sleep 1000 &")
        processes = {*hands.processes(), nursery(hands).pid}
    assert not any(map(running, processes))


def _agents(hands: HandsStack) -> list[int]:
    task = f"/proc/{nursery(hands).pid}/task/{nursery(hands).pid}/children"
    return [int(pid) for pid in Path(task).read_text().split()]
