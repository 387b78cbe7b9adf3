"""A thread is another user for a moment; the others of its process never are."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from services.hands.backends import credentials
from services.hands.backends.launcher import Launcher
from services.hands.backends.port import BackendUnavailable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")

USER = 200_123


@pytest.fixture
def thread():
    """One that has its own credentials, and ends with the test."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(credentials.shed).result()
        yield executor


def status(of):
    lines = Path(f"/proc/{of}/status").read_text().splitlines()
    fields = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    return {key: fields[key] for key in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff")}


def mine():
    return status(f"self/task/{threading.get_native_id()}")


def started():
    """What a program that this thread starts is."""
    program = ["cat", "/proc/self/status"]
    said = subprocess.run(program, capture_output=True, text=True, check=True, env={}, cwd="/")
    fields = [line.split() for line in said.stdout.splitlines()]
    return {words[0].rstrip(":"): words[1:] for words in fields if words}


def test_what_it_starts_is_that_users_for_good(thread):
    def start():
        with credentials.of(USER):
            return started()

    found = thread.submit(start).result()
    assert found["Uid"] == found["Gid"] == [str(USER)] * 4
    assert found["Groups"] == []
    assert {int(found[kind][0], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}


def test_the_other_threads_stay_who_they_were(thread):
    before = mine()

    def look():
        with credentials.of(USER):
            return mine(), status("self")

    inside, others = thread.submit(look).result()
    assert inside["Uid"] == [str(USER), str(USER), "0", str(USER)]
    assert others == mine() == before


async def test_root_is_told_what_to_do_on_a_machine_that_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    launcher = Launcher(tmp_path, privileged=True)
    try:
        with pytest.raises(BackendUnavailable, match="pdp11: run Drover as an ordinary user"):
            await launcher.open()
    finally:
        await launcher.close()


@pytest.mark.parametrize("error", [None, OSError("no such program"), KeyboardInterrupt()])
def test_the_thread_is_root_again_whatever_has_happened(thread, error):
    before = thread.submit(mine).result()

    def fail():
        with credentials.of(USER):
            if error is not None:
                raise error

    if error is not None:
        with pytest.raises(type(error)):
            thread.submit(fail).result()
    else:
        thread.submit(fail).result()
    assert thread.submit(mine).result() == before
    assert before["Uid"] == ["0"] * 4


_DIES = """
import subprocess, sys
from services.hands.backends import credentials

credentials.shed()
with credentials.of(200_124):
    program = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo; exec sleep 600"]
    started = subprocess.Popen(program, stdout=subprocess.PIPE)
started.stdout.readline()
with credentials.of(200_123):
    print(started.pid, flush=True)
    sys.stdin.read()
"""


def test_what_it_has_started_as_others_ends_with_it_whoever_it_is_just_then():
    process = subprocess.Popen([sys.executable, "-c", _DIES], stdin=PIPE, stdout=PIPE, text=True)
    with process:
        handle = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    ended, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    assert ended


def test_what_the_thread_sheds_is_not_handed_on(thread):
    found = thread.submit(mine).result()
    assert found["Groups"] == []
    assert int(found["CapInh"][0], 16) == 0
    assert found["CapEff"] == found["CapPrm"] == mine()["CapEff"]


def test_a_machine_that_is_not_known_is_refused_and_nothing_has_changed(thread, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    before = thread.submit(mine).result()

    def become():
        with credentials.of(USER):
            raise AssertionError

    with pytest.raises(credentials.UnknownMachine, match="pdp11"):
        thread.submit(become).result()
    assert thread.submit(mine).result() == before
