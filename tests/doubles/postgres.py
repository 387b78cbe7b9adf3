"""A PostgreSQL server of the tests' own, from the system's programs, on a free port."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.doubles.ports import free_port

_USER = "drover"
# By a program and not by `subprocess`, which would have to fork for it: a child that is forked in
# the midst of gRPC's threads dies now and then.
_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")
_PATIENCE = 75.0
"""Seconds that any of the programs may take: longer than pg_ctl waits for a server."""
_SHARED = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
"""For servers that no test kills: what is committed need not outlive the machine.

A vacuum of every database of the tests once a minute would take time from them, and statistics that
it happens to make in the midst of one would change what that measures.
"""


class Cluster:
    """One server with its data. It listens on loopback and in its own directory's socket."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self._data = directory / "data"
        self._password = secrets.token_hex(8)
        self._settings = settings
        self._databases = 0
        self.port = free_port()

    def make(self) -> None:
        """Makes the data directory."""
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres")
        # Whatever the machine speaks: its encoding would not do if that is nothing.
        language = ("--encoding", "UTF8", "--locale", "C")
        access = ("--auth", "trust", "--username", _USER)
        self._run("initdb", "-D", str(self._data), "--no-sync", *language, *access)
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": 300,
            **self._settings,
        }
        lines = [f"{name} = '{value}'\n" for name, value in options.items()]
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def start(self) -> None:
        """Starts the server and waits until it takes connections."""
        log = str(self.directory / "server.log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stops the server: `fast` in order, `immediate` as a crash would."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-t", "60", "stop")

    def restart(self, mode: str = "fast") -> None:
        """Stops the server and starts it again."""
        self.stop(mode)
        self.start()

    def pause(self) -> None:
        """SIGSTOP to every process of the server: connections hang, and so do new ones."""
        self._signal(signal.SIGSTOP)

    def stall(self, backends: Iterable[int]) -> None:
        """SIGSTOP to the server's processes of some connections; `resume` ends that too."""
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT to every process of the server."""
        self._signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether the server was started and not stopped."""
        return (self._data / "postmaster.pid").exists()

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"drover_{self._databases}"
        self.execute(f"CREATE DATABASE {name}", database="postgres")
        return self.url(name)

    def url(self, database: str, *, port: int | None = None) -> str:
        """The URL of a database, or of the same behind another port."""
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, sql: str, *, database: str) -> str:
        """Runs SQL as the superuser; answers the rows, columns separated by |."""
        return self._run(
            "psql", "-h", str(self.directory), "-p", str(self.port), "-U", _USER, "-d", database,
            "-v", "ON_ERROR_STOP=1", "-qAt", "-c", sql,
        )  # fmt: skip

    def _signal(self, number: signal.Signals) -> None:
        leader = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        # The leader first: it must not see its children stop and must make no more of them.
        for pid in (leader, *map(int, children)):
            with suppress(ProcessLookupError):  # a child that has ended meanwhile
                os.kill(pid, number)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*(_AS_POSTGRES if os.geteuid() == 0 else ()), str(_programs() / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "psql" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "psql" else subprocess.DEVNULL,
            cwd="/",
            check=False,
            text=True,
            timeout=_PATIENCE,
        )
        assert done.returncode == 0, (
            f"{program} {arguments}: {done.returncode} {done.stderr}\n{self._said_last()}"
        )
        return done.stdout.strip() if done.stdout else ""

    def _said_last(self) -> str:
        """The end of the server's own log."""
        log = self.directory / "server.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


@contextmanager
def running_cluster(**settings: str) -> Iterator[Cluster]:
    """A running server, durable unless told otherwise, that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="drover-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        cluster = Cluster(Path(folder), settings)
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            if cluster.running:
                cluster.resume()
                cluster.stop("immediate")


@contextmanager
def shared_cluster() -> Iterator[Cluster]:
    """A running server for tests that do not break it: quicker, since nothing need outlive it."""
    with running_cluster(**_SHARED) as cluster:
        yield cluster


def _programs() -> Path:
    """Where the server's programs are: the newest release on this machine."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"),
        key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0),
    )
    on_path = shutil.which("pg_ctl")
    assert found or on_path, (
        "these tests need PostgreSQL's programs (Debian: apt-get install postgresql)"
    )
    return found[-1].parent if found else Path(str(on_path)).resolve().parent
