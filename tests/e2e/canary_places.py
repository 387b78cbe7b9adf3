"""Everywhere that a secret could be found: what of some words is in each place."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2

from drover.session.v1 import session_service_pb2, session_service_pb2_grpc
from tests.doubles.marks import Mark, in_file, in_memory, occurring
from tests.e2e.canary_stack import CanaryStack

PLACES = (
    "log of events over gRPC",
    "requests to the model",
    "answers of the API",
    "log files",
    "databases",
    "data directory",
    "spans",
    "metrics",
    "sandbox files",
    "sandbox /proc",
    "sandbox memory",
    "arguments of processes",
    "environments of processes",
    "memory of brain-1",
    "memory of hands",
    "memory of registry",
)
# Trees of a sandbox that are the host's or the image's, and those that the kernel makes up.
_NOT_LOOKED_INTO = {"usr", "lib", "lib64", "bin", "sbin", "proc", "sys"}
_PROC = ("environ", "cmdline", "comm", "status", "mountinfo", "limits", "cgroup", "maps")


class Places:
    """The places of a stack, and of one session's sandbox, which `resident` is a process of."""

    def __init__(
        self, world: CanaryStack, marks: Iterable[Mark], session_id: str, resident: int, extra: str
    ) -> None:
        self._world = world
        self._stack = world.stack
        self._marks = [*marks]
        self._session_id = session_id
        self._resident = resident
        self._extra = extra
        self.looked_at = 0

    def search(self) -> dict[str, set[str]]:
        """The words that are in each place, by place."""
        found = {place: set[str]() for place in PLACES}
        found["log of events over gRPC"] = self._in(*self._events())
        found["requests to the model"] = self._in(*(one.raw for one in self._stack.model.requests))
        found["answers of the API"] = self._in(*self._world.answers)
        found["spans"] = self._in(*self._world.spans.bodies)
        found["metrics"] = self._in(*self._metrics())
        self._files(found)
        self._sandbox(found)
        self._processes(found)
        for name in ("brain-1", "hands", "registry"):
            found[f"memory of {name}"] = in_memory(self._marks, self._stack.pid(name))
        return found

    def _in(self, *texts: bytes) -> set[str]:
        return {word for one in texts for word in occurring(self._marks, one)}

    def _events(self) -> Iterator[bytes]:
        """As brains see them, fields that no client sees included; and an operator's export."""
        identity = (("authorization", f"Bearer {self._stack.token}"),)
        with self._stack.channel("session") as channel:
            sessions = session_service_pb2_grpc.SessionServiceStub(channel)
            asked = session_service_pb2.GetEventsRequest(session_id=self._session_id, limit=1000)
            page = sessions.GetEvents(asked, metadata=identity)
            assert page.data
            yield page.SerializeToString()
            export = session_service_pb2.ExportSessionRequest(session_id=self._session_id)
            for part in sessions.ExportSession(export, metadata=identity):
                yield part.SerializeToString()

    def _metrics(self) -> Iterator[bytes]:
        for url in (*self._world.metrics, self._extra):
            answer = httpx2.get(url, trust_env=False, timeout=60)
            assert answer.status_code == 200, url
            assert b"# HELP" in answer.content, url
            yield answer.content

    def _files(self, found: dict[str, set[str]]) -> None:
        for path in self._stack.data.rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            place = "data directory"
            if ".db" in path.name:
                place = "databases"
            elif path.suffix == ".log":
                place = "log files"
            found[place] |= in_file(self._marks, path)

    def _sandbox(self, found: dict[str, set[str]]) -> None:
        inside = _namespace(self._resident)
        for pid in [pid for pid in _pids() if _namespace(pid) == inside]:
            for name in _PROC:
                found["sandbox /proc"] |= in_file(self._marks, Path(f"/proc/{pid}/{name}"))
            found["sandbox memory"] |= in_memory(self._marks, pid)
        for path in _tree(Path(f"/proc/{self._resident}/root")):
            self.looked_at += 1
            found["sandbox files"] |= in_file(self._marks, path)
            found["sandbox files"] |= self._in(os.fsencode(path.name))

    def _processes(self, found: dict[str, set[str]]) -> None:
        """All but `drover up` and the vault proxy, which the operator told some of it."""
        told = {int(self._stack.pid("vault_proxy")), _parent(self._stack.pid("vault_proxy"))}
        for pid in _pids():
            found["arguments of processes"] |= in_file(self._marks, Path(f"/proc/{pid}/cmdline"))
            if pid not in told and pid != os.getpid():
                environment = Path(f"/proc/{pid}/environ")
                found["environments of processes"] |= in_file(self._marks, environment)


def processes_with(word: str) -> list[int]:
    """The processes of this machine that have the word among their arguments."""
    wanted = Mark(word)
    return [pid for pid in _pids() if in_file([wanted], Path(f"/proc/{pid}/cmdline"))]


@contextmanager
def exposing(text: str) -> Iterator[str]:
    """Metrics of nobody's that have this in a label: where they are scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'# HELP planted Planted.\nplanted{{label="{text}"}} 1\n'.encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def _tree(root: Path) -> Iterator[Path]:
    for directory, folders, files in os.walk(root):
        here = Path(directory)
        if here == root:
            folders[:] = [one for one in folders if one not in _NOT_LOOKED_INTO]
        for name in files:
            with suppress(OSError):
                if (here / name).is_file() and not (here / name).is_symlink():
                    yield here / name
