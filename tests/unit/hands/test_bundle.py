"""The agent starts from one file, or without it where the interpreter is another."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.hands.backends import agent_files, bundle
from services.hands.backends.bubblewrap import find_python

REFUSES = b"not in a sandbox"
"""What the agent says where it is started outside: it was found and run."""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    directory = tmp_path / "agent"
    agent_files.lay_out(directory, find_python())
    return directory


def start(
    agent: Path, *options: str, main: str = agent_files.MAIN_FILE
) -> subprocess.CompletedProcess[bytes]:
    command = [find_python(), "-I", "-S", *options, str(agent / main)]
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)


def imported(agent: Path) -> set[str]:
    """The modules that are found in the agent's directory."""
    shown = start(agent, "-v").stderr.decode()
    words = (
        line.split("'")[1] for line in shown.splitlines() if line.startswith("import 'services")
    )
    return set(words)


def test_agent_starts_from_a_compiled_program(agent: Path) -> None:
    compiled = agent / agent_files.COMPILED_FILE
    assert compiled.read_bytes() != (agent / agent_files.MAIN_FILE).read_bytes()
    shown = start(agent, main=compiled.name)
    assert REFUSES in shown.stderr
    assert shown.stdout.endswith(b'{"type":"ready"}')


def test_agent_starts_from_its_source_where_it_could_not_be_compiled(tmp_path: Path) -> None:
    agent_files.lay_out(tmp_path / "agent", "")
    assert REFUSES in start(tmp_path / "agent", main=agent_files.COMPILED_FILE).stderr


def test_agent_is_up_without_importing_a_module_of_its_own(agent: Path) -> None:
    assert REFUSES in start(agent).stderr
    assert start(agent).stdout.endswith(b'{"type":"ready"}')
    assert imported(agent) == set()


def test_every_module_that_is_needed_at_the_start_is_bundled(agent: Path) -> None:
    (agent / bundle.FILE).unlink()
    needed = {name for name in imported(agent) if name.startswith(f"{bundle.PACKAGE}.")}
    assert needed == {f"{bundle.PACKAGE}.{module}" for module in bundle.MODULES}


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0rest", None])
def test_agent_starts_without_its_bundle_or_with_anothers(
    agent: Path, content: bytes | None
) -> None:
    (agent / bundle.FILE).unlink()
    if content is not None:
        (agent / bundle.FILE).write_bytes(content)
    assert REFUSES in start(agent).stderr
    assert start(agent).stdout.endswith(b'{"type":"ready"}')
