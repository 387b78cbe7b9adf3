"""`drover up` as its user sees it: starts, says so, guards its data, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from cli.launched import LaunchedStack
from cli.stack.installation import Installation
from tests.e2e.forked_stack import ForkedStack

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ["registry", "session", "vault_proxy", "hands", "brain-1", "brain-2", "gateway"]
SECRETS = {"ANTHROPIC_API_KEY": "sk-ant-hidden", "DROVER_API_KEY": "drv_hidden"}
DEADLINE = 60.0
_LAUNCH_AND_WAIT = """
import pathlib, signal, sys
from cli.launched import LaunchedStack
print(LaunchedStack(pathlib.Path(sys.argv[1]), brains=1).start().pid, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchedStack]:
    with LaunchedStack(
        tmp_path_factory.mktemp("up"),
        environment={**os.environ, **SECRETS, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
    ) as stack:
        yield stack


def family(stack: LaunchedStack) -> dict[str, int]:
    return {name: stack.pid_of(name) for name in NAMES} | {"supervisor": stack.pid}


def await_end(pids: list[int]) -> None:
    """Waits until every process has ended, zombies of other parents included."""
    deadline = time.monotonic() + DEADLINE
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            ended, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
            os.close(descriptor)
            assert ended, f"process {pid} survived"


def test_every_process_has_a_pid_file_and_an_address(up: LaunchedStack) -> None:
    pids = family(up)
    assert len(set(pids.values())) == len(pids)
    for name in NAMES:
        assert Path(f"/proc/{pids[name]}").exists()
        assert up.installation.address_file(name).read_text().startswith("127.0.0.1:")


def test_one_ready_line_names_the_url_and_the_key(up: LaunchedStack) -> None:
    lines = (up.data / "up.log").read_text().splitlines()
    ready = [line for line in lines if line.startswith("ready")]
    assert ready == [f"ready  {up.target.url}  key drv_hidden"]
    assert {line.split()[0] for line in lines} >= set(NAMES)


def test_stack_is_ready_when_it_says_so(up: LaunchedStack) -> None:
    assert httpx2.get(f"{up.target.url}/readyz", timeout=60).status_code == 200


def test_secrets_are_on_no_command_line_and_only_where_they_are_needed(up: LaunchedStack) -> None:
    for name, pid in family(up).items():
        assert not any(
            secret.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            for secret in SECRETS.values()
        )
        if name != "supervisor":
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert not any(secret.encode() in environment for secret in SECRETS.values()), name
    for log in up.installation.logs.iterdir():
        assert not any(secret in log.read_text() for secret in SECRETS.values()), log.name


def test_what_is_in_run_can_be_read_by_its_owner_alone(up: LaunchedStack) -> None:
    assert stat.S_IMODE(up.installation.run.stat().st_mode) == 0o700
    for path in up.installation.run.rglob("*"):
        own = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == own, path


def test_second_stack_over_the_same_directory_is_refused(up: LaunchedStack) -> None:
    refused = subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", "up", "--port", "0", "--data", str(up.data)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert refused.returncode == 1
    assert f"is in use by a running stack (pid {up.pid})" in refused.stderr
    assert httpx2.get(f"{up.target.url}/readyz", timeout=60).status_code == 200


@pytest.mark.parametrize("name", ["registry", "gateway"])
def test_service_that_is_killed_is_back_at_its_old_address(up: LaunchedStack, name: str) -> None:
    address = up.installation.address_file(name).read_text()
    killed = up.kill_service(name)
    began = time.monotonic()
    while not _ready(up) or _pid(up, name) in {None, killed}:
        assert time.monotonic() - began < DEADLINE
        time.sleep(0.01)
    assert up.installation.address_file(name).read_text() == address


def test_stack_ends_on_sigint_with_exit_code_0_and_leaves_nothing(up: LaunchedStack) -> None:
    """The last of those that share it."""
    pids = [up.pid_of(name) for name in NAMES]
    os.kill(up.pid, signal.SIGINT)
    assert up.stop() == 0
    await_end(pids)
    assert not list(up.installation.run.glob("*.pid"))
    assert not list(up.installation.run.glob("*.address"))


def test_nothing_survives_a_supervisor_that_is_killed_and_its_data_can_be_used_again(
    tmp_path: Path,
) -> None:
    with LaunchedStack(tmp_path, brains=1) as stack:
        pids = [stack.pid_of(name) for name in NAMES if name != "brain-2"]
        key = stack.target.key
        stack.kill()
    await_end(pids)
    with ForkedStack(tmp_path, brains=1) as again:
        assert again.target.key == key


def test_stack_ends_after_whoever_launched_it_was_killed(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH_AND_WAIT, str(tmp_path)], stdout=subprocess.PIPE
    )
    with launcher:
        assert launcher.stdout is not None
        supervisor = int(launcher.stdout.readline())
        run = Installation(tmp_path).run
        pids = [supervisor, *(int(file.read_text()) for file in run.glob("*.pid"))]
        launcher.kill()
    await_end(pids)
    assert len(pids) == len(NAMES)  # one brain, and the supervisor
    assert not list(run.glob("*.pid"))


def test_launch_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def interrupt(stack: LaunchedStack, _output: Path) -> None:
        begun.append(stack.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(LaunchedStack, "_await_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        LaunchedStack(tmp_path, brains=1).start()
    assert not Path(f"/proc/{begun[0]}").exists()


def _pid(stack: LaunchedStack, name: str) -> int | None:
    with suppress(OSError, ValueError):
        return stack.pid_of(name)
    return None


def _ready(stack: LaunchedStack) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{stack.target.url}/readyz", timeout=2).status_code == 200
    return False
