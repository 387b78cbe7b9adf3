"""A real MCP server in a process of its own, built with the official library.

It has an OAuth authorization server beside it, can be told to fail, and tells what it was asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.doubles.mcp_tools import PDF, PNG

__all__ = ["PDF", "PNG", "Granted", "McpServer", "running_mcp_server"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Granted:
    """What the authorization server gave a client."""

    access_token: str
    refresh_token: str


class McpServer:
    """The process, from the test's side. `url` of a path that `mcp_peer.Peer` names."""

    def __init__(self, port: int, faults: int, *, scheme: str = "http") -> None:
        self.host = "127.0.0.1"
        self.port = port
        self.faults_port = faults
        self.origin = f"{scheme}://{self.host}:{port}"
        self.token_endpoint = f"{self.origin}/oauth/token"
        self._control = httpx2.Client(
            base_url=self.origin, trust_env=False, verify=False, timeout=30
        )

    def url(self, path: str = "/mcp") -> str:
        """Where a server that behaves is: `/mcp`, `/old`, `/sse`, `/json/mcp`, `/private/mcp`."""
        return f"{self.origin}{path}"

    def fault(self, path: str) -> str:
        """Where one is that does not: a path of `mcp_faults.PATHS`."""
        return f"http://{self.host}:{self.faults_port}{path}"

    def grant(
        self,
        client_id: str = "drover",
        *,
        client_secret: str | None = None,
        method: str = "none",
        scope: str = "",
    ) -> Granted:
        """Registers an OAuth client; its tokens open what is beneath `/private`."""
        answer = self._do(
            "grant", client_id=client_id, client_secret=client_secret, method=method, scope=scope
        )
        return Granted(answer["access_token"], answer["refresh_token"])

    def allow(self, token: str) -> None:
        """Has a fixed token open what is beneath `/private`."""
        self._do("static", token=token)

    def revoke(self, token: str) -> None:
        """Has a token, of whichever kind, open nothing any more: a 401 says so."""
        self._do("revoke", token=token)

    def ban(self, token: str) -> None:
        """Has an access token be known, and refused with a 403."""
        self._do("ban", token=token)

    def challenge(self, challenge: str) -> None:
        """What a 401 says in `www-authenticate`; empty for what is usual."""
        self._do("challenge", challenge=challenge)

    def tokens(self, *, expires_in: int = 3600, rotates: bool = True, mark: str = "") -> None:
        """How access tokens are issued from now on, and a word that each has in it."""
        self._do("tokens", expires_in=expires_in, rotates=rotates, mark=mark)

    def token_fault(self, fault: Mapping[str, Any] | None) -> None:
        """How the token endpoint fails, as `mcp_oauth.TokenEndpoint` says; `None` ends it."""
        self._do("fault", fault=fault)

    def hold_tokens(self) -> None:
        """Has the token endpoint wait with its answers for `release_tokens`."""
        self._do("hold")

    def release_tokens(self) -> None:
        """Lets the token endpoint answer."""
        self._do("release")

    def offer(self, **wanted: Any) -> None:
        """Changes the offer: `descriptions`, `more` tools, a `page` size, an `endless` list,
        `answers` of the tool `script`."""
        self._do("offer", **wanted)

    def forget(self) -> None:
        """Forgets what was asked and run so far."""
        self._do("forget")

    def report(self) -> dict[str, Any]:
        """What was asked: `runs` by tool, `metas`, `seen` requests, `token_requests`, `faults`;
        and the refresh tokens that are `spent` and `live`, in the order of their issue."""
        answer: dict[str, Any] = self._control.get("/control").json()
        return answer

    def runs(self, tool: str) -> int:
        """How often a tool was run, or a fault's path called."""
        count: int = self.report()["runs"].get(tool, 0)
        return count

    def refreshes(self) -> int:
        """How often the token endpoint was asked."""
        return len(self.report()["token_requests"])

    def close(self) -> None:
        """Ends the test's own connection."""
        self._control.close()

    def _do(self, what: str, **fields: Any) -> Any:
        answer = self._control.post("/control", json={"do": what, **fields})
        answer.raise_for_status()
        return answer.json()


@contextmanager
def running_mcp_server(
    *, certificate: Path | None = None, key: Path | None = None
) -> Iterator[McpServer]:
    """Starts the process, with TLS where a certificate is given, and ends it."""
    tls = ["--certificate", str(certificate), "--key", str(key)] if certificate else []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.doubles.mcp_peer", *tls],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "the MCP server did not start"
        told = json.loads(line)
        server = McpServer(told["port"], told["faults"], scheme="https" if certificate else "http")
        yield server
        server.close()
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
