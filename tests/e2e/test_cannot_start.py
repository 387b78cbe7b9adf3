"""What keeps a process, or a stack, from starting: one line that says what to do, and no rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chassis.errors import WRONG_SETTINGS

DEADLINE = 60.0
NOWHERE = "127.0.0.1:9"
SERVICES = ("registry", "session", "vault_proxy", "hands")
SETTINGS = {
    **{f"DROVER_{name.upper()}_ADDRESS": NOWHERE for name in SERVICES},
    "DROVER_BRAIN_ADDRESSES": NOWHERE,
}


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTHROPIC_", "DROVER_"))
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def reason(ended: subprocess.CompletedProcess[str]) -> str:
    """Why a process did not start: its only complaint."""
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    [told] = [line["reason"] for line in lines if line["level"] == "error"]
    return str(told)


def processes_of(data: Path) -> list[str]:
    """Command lines of what runs over a data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"DROVER_DATA_DIR={data}\0".encode() in environment and line:
                found.append(line.decode())
    return found


@contextmanager
def small_disk(place: Path, kibibytes: int) -> Iterator[Path]:
    """A disk of its own."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_stack_with_a_wrong_setting_names_it_and_leaves_nothing_running(tmp_path: Path) -> None:
    ended = run(
        *("cli.main", "up", "--quiet", "--data", str(tmp_path), "--port", "0", "--brains", "1"),
        DROVER_FILES_QUOTA_BYTES="plenty",
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    [first, last] = ended.stderr.splitlines()
    assert first.startswith("registry: DROVER_FILES_QUOTA_BYTES: ")
    assert "`drover doctor`" in last
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "run").glob("*.pid")) == []


def test_stack_on_a_full_disk_says_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        (disk / "full").write_bytes(b"x" * 60 * 1024)
        data = disk / "data"
        told = "--quiet", "--data", str(data), "--port", "0", "--brains", "1"
        ended = run("cli.main", "up", *told)
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert "Traceback" not in ended.stderr
        assert "make room" in ended.stderr
        assert processes_of(data) == []
        assert list((data / "run").glob("*.pid")) == []


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A data directory with a secret and no room for more."""
    with small_disk(tmp_path / "disk", 64) as disk:
        token = disk / "run" / "token"
        token.parent.mkdir()
        token.write_text("secret")
        token.chmod(0o600)
        with suppress(OSError), (disk / "full").open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        yield disk


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("services.session.main", "session.db: make room on its disk"),
        ("gateway.main", "name their file with DROVER_API_KEY_FILE"),
    ],
)
def test_process_on_a_full_disk_says_what_to_do(module: str, says: str, full: Path) -> None:
    before = sorted(path.name for path in full.rglob("*"))
    ended = run(module, DROVER_DATA_DIR=str(full), **SETTINGS)
    assert ended.returncode == 1
    assert says in reason(ended)
    left = {path.name for path in full.rglob("*")} - set(before)
    assert not [name for name in left if "api_key" in name]


def test_process_with_wrong_settings_names_each_and_how_it_ends_tells_it(tmp_path: Path) -> None:
    wrong = {"DROVER_LOG_LEVEL": "loud", "DROVER_STUCK_SESSION_SECONDS": "-1"}
    ended = run("services.session.main", DROVER_DATA_DIR=str(tmp_path), **SETTINGS, **wrong)
    assert ended.returncode == WRONG_SETTINGS
    assert all(name in reason(ended) for name in wrong)
    assert list(tmp_path.iterdir()) == []
