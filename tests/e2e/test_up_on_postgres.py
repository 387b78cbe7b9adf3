"""`drover up` on PostgreSQL: migrates by itself, keeps everything there, tells no password."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli.launched import LaunchedStack
from cli.stack.ports import LOOPBACK
from tests.doubles.ports import free_port
from tests.e2e import monitoring
from tests.e2e.driving import history, new_session, run_turn, texts
from tests.e2e.forked_stack import ForkedStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.postgres import Cluster

DEADLINE = 60.0


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    return kept | more


def up(data: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", "up", "--port", "0", "--data", str(data)],
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def drover(*arguments: str | Path, **variables: str) -> str:
    """What a command prints that goes well."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *map(str, arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_stack_on_postgres_migrates_runs_sessions_and_goes_on_from_its_back_up(
    tmp_path: Path, postgres: Cluster
) -> None:
    data, url = tmp_path / "data", postgres.new_database()
    password = url.partition("://drover:")[2].partition("@")[0]
    first = monitoring.free_row(6)
    variables = environment(DROVER_DATABASE_URL=url, DROVER_METRICS_LISTEN=f"{LOOPBACK}:{first}")
    with LaunchedStack(data, brains=1, environment=variables) as stack:
        client = stack.target.client()
        session = new_session(client)
        run_turn(client, session.id, "Run `echo kept > notes.txt`")
        upload = client.beta.files.upload(file=("a.txt", b"given", "text/plain"))
        vault = client.beta.vaults.create(display_name="Ada")
        auth: Any = {"type": "static_bearer", "mcp_server_url": "https://a.example", "token": "t"}
        client.beta.vaults.credentials.create(vault.id, auth=auth)
        before = [event.id for event in history(client, session.id)]
        names = ("registry", "session", "hands", "gateway", "brain-1")
        for pid in [*map(stack.pid_of, names), stack.pid]:
            assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        # The one stack that is measured anyway: dashboard and alerts ask for nothing else.
        assert monitoring.named() - monitoring.shown(range(first, first + 6)) == set()
        kept, keys = tmp_path / "kept", tmp_path / "keys"
        drover("backup", kept, "--keys", keys, "--data", data, DROVER_DATABASE_URL=url)
        told = (data / "up.log").read_text()
        logs = {log.name: log.read_text() for log in stack.installation.logs.iterdir()}
    assert "session      127.0.0.1" in told
    assert "revision 0001 applied" in told
    assert not any(password in text for text in [told, *logs.values()])
    assert list(data.glob("*.db")) == []

    # Another machine, on which nothing is but the back-up.
    shutil.rmtree(data)
    new, other = tmp_path / "new", postgres.new_database()
    drover("restore", kept, "--keys", keys, "--data", new, DROVER_DATABASE_URL=other)
    with ForkedStack(new, brains=1, environment=environment(DROVER_DATABASE_URL=other)) as stack:
        client = stack.target.client()
        assert "applied" not in (new / "up.log").read_text()
        assert [event.id for event in history(client, session.id)] == before
        results = run_turn(client, session.id, "Run `cat notes.txt`")
        assert any("kept" in text for text in texts(results, "agent.tool_result"))
        assert client.beta.files.retrieve_metadata(upload.id).size_bytes == len(b"given")
        # The keys open what is stored: nothing else could wrap it anew.
        assert drover("vault", "rotate", "--data", new).split()[-1] == "file:2"


@pytest.mark.parametrize("url", ["postgresql://u:sesame@127.0.0.1:{port}/drover", "oracle://x"])
def test_stack_without_its_database_says_so_in_one_line_and_starts_nothing(
    url: str, tmp_path: Path
) -> None:
    url = url.replace("{port}", str(free_port()))
    refused = up(tmp_path, environment(DROVER_DATABASE_URL=url))
    assert refused.returncode == 1
    assert refused.stdout == ""
    [line] = refused.stderr.splitlines()
    assert "127.0.0.1" in line or "no database engine" in line
    assert "sesame" not in line
    assert list((tmp_path / "run").glob("*.pid")) in ([], [tmp_path / "run" / "supervisor.pid"])


def test_service_without_its_database_ends_with_one_line_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "token").write_text("t")
    ended = subprocess.run(
        [sys.executable, "-m", "services.registry.main"],
        env=environment(
            DROVER_DATA_DIR=str(tmp_path),
            DROVER_DATABASE_URL=f"postgresql://u:sesame@127.0.0.1:{free_port()}/drover",
        ),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert "cannot_start" in line
    assert "no PostgreSQL listens at 127.0.0.1" in line
    assert "Traceback" not in ended.stderr
    assert "sesame" not in ended.stderr
