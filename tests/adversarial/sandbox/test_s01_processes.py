"""S1: /proc/1/environ, /proc/*/root, other processes, ptrace."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack, Sandboxes

OWN_NAMES = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PAGER", "GIT_PAGER"),
    *("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "HOSTNAME"),
}


async def test_environment_is_the_sandboxes_own(
    sandboxes: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_API_KEY", "secret-of-the-host")
    async with sandboxes.stack(tmp_path) as hands:
        shown = await hands.bash("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; :")
    assert "secret-of-the-host" not in shown
    names = {line.partition("=")[0] for line in shown.split("\n") if "=" in line}
    assert names <= OWN_NAMES


@pytest.mark.asyncio(loop_scope="module")
async def test_only_its_own_processes_are_seen_and_they_say_nothing_of_the_host(
    shared: HandsStack,
) -> None:
    told = await probe(
        shared,
        "found['commands'] = [text(f'/proc/{pid}/cmdline') for pid in pids()]\n"
        "found['parent'] = os.getppid() in pids() and 1 in pids()\n",
    )
    assert told["parent"]
    assert len(told["commands"]) <= 5
    for command in told["commands"]:
        for word in ("--bind", "workspaces", "sesn_", "pytest", "drover"):
            assert word not in command


@pytest.mark.asyncio(loop_scope="module")
async def test_root_of_every_process_is_the_sandboxes(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found['own'] = sorted(os.listdir('/'))\n"
        "found['roots'] = []\n"
        "for pid in pids():\n"
        "    for place in ('root', 'cwd'):\n"
        "        try:\n"
        "            found['roots'].append([place, sorted(os.listdir(f'/proc/{pid}/{place}/'))])\n"
        "        except OSError:\n"
        "            continue\n"
        "found['places'] = [link(f'/proc/{pid}/{name}') for pid in pids()\n"
        "                   for name in ('root', 'cwd', 'exe')]\n",
    )
    for place, listing in told["roots"]:
        assert listing == told["own"] or place == "cwd"
    for place in told["places"]:
        assert place == "" or place.startswith(("/usr/", "/bin/")) or place in {"/", "/workspace"}


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_can_be_traced_or_looked_into(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found['traced'] = [pid for pid in pids() if call(101, 16, pid, 0, 0) != 1]\n"
        "found['itself'] = call(101, 0, 0, 0, 0)\n"
        "found['read'] = call(310, 1, 0, 0, 0, 0, 0)\n"
        "found['written'] = call(311, 1, 0, 0, 0, 0, 0)\n",
    )
    itself, others = told.pop("itself"), told
    assert itself == errno.EPERM
    assert others == {"traced": [], "read": errno.EPERM, "written": errno.EPERM}


@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_kernel_says_of_the_host_is_hidden(shared: HandsStack) -> None:
    masked = ("cmdline", "interrupts", "key-users", "keys", "kcore", "sched_debug", "timer_list")
    told = await probe(
        shared, f"found['shown'] = {{name: text('/proc/' + name)[:999] for name in {masked}}}\n"
    )
    shown = told["shown"]
    host = Path("/proc/cmdline").read_text(encoding="utf-8").strip()
    assert shown["cmdline"].strip() != host or not host
    assert {name: text for name, text in shown.items() if text and name != "cmdline"} == {}


@pytest.mark.asyncio(loop_scope="module")
async def test_control_groups_of_the_host_are_not_seen(shared: HandsStack) -> None:
    told = await probe(shared, "found['groups'] = text('/proc/self/cgroup').splitlines()\n")
    host = {
        line.split(":", 2)[2]
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    }
    for group in told["groups"]:
        path = group.split(":", 2)[2]
        # Its own name below the namespace's root may be seen, where the host has put it may not.
        assert path == "/" or path not in host
