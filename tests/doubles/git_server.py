"""A git host of its own: `git http-backend` behind basic authentication, over HTTP or HTTPS.

Repositories have the paths of the large hosts: `/owner/name` and `/owner/name.git` are the same.
All that the program offers is served, the dumb protocol too, so that a test sees who asks for it.
"""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

PLAIN: dict[str, str] = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "init.defaultBranch",
    "GIT_CONFIG_VALUE_0": "main",
    "GIT_CONFIG_KEY_1": "safe.directory",
    "GIT_CONFIG_VALUE_1": "*",
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{role}_NAME": "Ada" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "ada@example.com" for role in ("AUTHOR", "COMMITTER")},
}
"""The environment of a git that knows nothing of this machine's settings."""

_PIECE = 64 * 1024


def git(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Runs git here, for the test itself; answers what it printed. Raises if it fails."""
    ran = subprocess.run(
        ["git", *map(str, arguments)],
        cwd=cwd,
        env=PLAIN,
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.strip()


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came. `user` and `password` are those of basic authentication, if any."""

    method: str
    target: str
    headers: Mapping[str, str]
    user: str = ""
    password: str = ""


@dataclass
class Repository:
    """A repository. `tokens` open it, `public` lets everybody read it.

    `banned` are tokens that are known and may not: they get a 403, unknown ones a 401.
    """

    path: Path
    tokens: set[str] = field(default_factory=set)
    public: bool = False
    banned: set[str] = field(default_factory=set)

    def read(self, name: str, revision: str = "main") -> str:
        """A file's content as it is in the repository."""
        return git("-C", self.path, "show", f"{revision}:{name}")

    def commit(self, branch: str = "main") -> str:
        """The hash of a branch's last commit."""
        return git("-C", self.path, "rev-parse", f"refs/heads/{branch}")


class GitServer:
    """What is served, and what was asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.redirect = ""
        """Where everything is redirected to; empty for nowhere."""
        self.held = ""
        """Requests whose path ends like this wait for `gate`; `holding` tells that one does."""
        self.holding = threading.Event()
        self.gate = threading.Event()
        self.url = ""
        self.port = 0

    def add(
        self,
        name: str,
        files: Mapping[str, str],
        *,
        tokens: Iterable[str] = (),
        public: bool = False,
        banned: Iterable[str] = (),
        branches: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Repository:
        """Makes the repository `owner/name` of one commit, with a further one for every branch."""
        path = self.root / f"{name}.git"
        work = self.root / f"{name}.work"
        path.parent.mkdir(parents=True, exist_ok=True)
        git("init", "--quiet", work)
        _commit(work, files)
        for branch, more in (branches or {}).items():
            git("checkout", "--quiet", "-b", branch, "main", cwd=work)
            _commit(work, more)
            git("checkout", "--quiet", "main", cwd=work)
        git("clone", "--quiet", "--bare", work, path)
        git("-C", path, "config", "http.receivepack", "true")
        git("-C", path, "update-server-info")
        repository = Repository(path, set(tokens), public, set(banned))
        self.repositories[name] = repository
        return repository

    def asked(self, ending: str) -> list[Request]:
        """The requests whose path ends like this."""
        return [one for one in list(self.requests) if urlsplit(one.target).path.endswith(ending)]


def _commit(work: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(content)
    git("add", "--all", cwd=work)
    git("commit", "--quiet", "--allow-empty", "--message", "As it was", cwd=work)


@contextmanager
def running_git_server(
    root: Path, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[GitServer]:
    """A server that ends with the block; HTTPS with the context of a certificate for `host`."""
    served = GitServer(root)
    server = _Server((host, 0), type("Handler", (_Handler,), {"served": served}))
    if tls is not None:
        # The handshake is the handler's thread's: one that never ends holds up nobody else.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    served.port = server.server_port
    served.url = f"{'https' if tls else 'http'}://{host}:{served.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        served.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave, or trust nobody, are no news."""


class _Handler(BaseHTTPRequestHandler):
    served: GitServer
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        user, password = self._basic()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.served.requests.append(Request(self.command, self.path, headers, user, password))
        url = urlsplit(self.path)
        if self.served.held and url.path.endswith(self.served.held):
            self.served.holding.set()
            self.served.gate.wait(30)
        if self.served.redirect:
            self._say(302, b"", ("Location", self.served.redirect + self.path))
            return
        name, rest = _split(url.path)
        repository = self.served.repositories.get(name)
        if repository is None:
            self._say(404, b"no such repository")
            return
        writes = rest == "/git-receive-pack" or "service=git-receive-pack" in url.query
        if password in repository.banned:
            self._say(403, b"this token may not")
        elif password in repository.tokens or (repository.public and not writes and not password):
            self._backend(repository, rest, url.query, user)
        else:
            self._say(401, b"who are you?", ("WWW-Authenticate", 'Basic realm="git"'))

    def _basic(self) -> tuple[str, str]:
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return "", ""
        with suppress(ValueError):
            user, _, password = base64.b64decode(value).decode().partition(":")
            return user, password
        return "", ""

    def _say(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        for _ in self._body():  # a client that still sends would not see the answer
            pass
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length", "0"))
        while left and (piece := self.rfile.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece

    def _backend(self, repository: Repository, rest: str, query: str, user: str) -> None:
        """What the program itself says, streamed both ways."""
        environment = {
            **PLAIN,
            "GIT_PROJECT_ROOT": str(repository.path.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{repository.path.name}{rest}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": user or "anonymous",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
        }
        for header, name in (
            ("Content-Length", "CONTENT_LENGTH"),
            ("Content-Encoding", "HTTP_CONTENT_ENCODING"),
            ("Git-Protocol", "GIT_PROTOCOL"),
        ):
            if (value := self.headers.get(header)) is not None:
                environment[name] = value
        with subprocess.Popen(
            ["git", "http-backend"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            feeding = threading.Thread(target=self._feed, args=(program.stdin,), daemon=True)
            feeding.start()
            self._relay(program.stdout)
            feeding.join()

    def _feed(self, stdin: IO[bytes]) -> None:
        with suppress(OSError):  # it has seen enough, or the client has left
            try:
                for piece in self._body():
                    stdin.write(piece)
            finally:
                stdin.close()

    def _relay(self, stdout: IO[bytes]) -> None:
        status, headers = 200, []
        while line := stdout.readline().strip():
            name, _, value = line.decode().partition(": ")
            if name.lower() == "status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := stdout.read1(_PIECE):  # type: ignore[attr-defined]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def _split(path: str) -> tuple[str, str]:
    """The repository that a path names, `owner/name`, and what of it is asked for."""
    parts = path.split("/", 3)
    name = "/".join(parts[1:3]).removesuffix(".git")
    return name, f"/{parts[3]}" if len(parts) > 3 else ""
