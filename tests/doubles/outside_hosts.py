"""Hosts of the outside on this machine that keep all that they are sent: one that a credential is
bound to, and one of a thief's. They differ by name: the one is this machine's, the other 127.0.0.2.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.doubles.certificates import Authority

THIEF = "127.0.0.2"


@dataclass
class Host:
    """`heard` are the requests: their heads as they came, and the body behind them.

    `/fail` answers 503, what is git's 404, `/away` redirects to `elsewhere`, `/held` waits for
    `gate`; everything else is sent back, headers, body, and both in base64. An upgrade to a
    WebSocket is answered with one frame that has the request in it.
    """

    name: str
    port: int
    plain: int
    elsewhere: str = ""
    heard: list[bytes] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"https://{self.name}:{self.port}"

    @property
    def http(self) -> str:
        return f"http://{self.name}:{self.plain}"

    def asked(self, part: str) -> list[bytes]:
        """The requests that have this in their first line."""
        return [one for one in [*self.heard] if part.encode() in one.partition(b"\r\n")[0]]


@dataclass
class Outside:
    """`opening` is for DROVER_EGRESS_ALLOW_PRIVATE; `closed` is a port of it where nobody is."""

    bound: Host
    thief: Host
    ca_file: Path
    opening: str
    closed: int


@contextmanager
def running_outside(directory: Path) -> Iterator[Outside]:
    """Both, with certificates of one authority."""
    authority = Authority("Outside")
    ca_file = directory / "outside.pem"
    ca_file.write_text(authority.certificate)
    name = socket.gethostname().lower()
    address = socket.gethostbyname(name)
    with (
        socket.socket() as reserved,
        _running(name, address, authority, directory) as bound,
        _running(THIEF, THIEF, authority, directory) as thief,
    ):
        reserved.bind((address, 0))  # and never listened at
        closed = reserved.getsockname()[1]
        bound.elsewhere = thief.url
        places = [(address, bound.port), (address, bound.plain), (address, closed)]
        places += [(THIEF, thief.port), (THIEF, thief.plain)]
        opening = ",".join(f"{one}/32:{port}" for one, port in places)
        yield Outside(bound, thief, ca_file, opening, closed)


@contextmanager
def _running(name: str, address: str, authority: Authority, directory: Path) -> Iterator[Host]:
    chain = directory / f"{name}.pem"
    chain.write_text(authority.leaf(name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    host = Host(name, 0, 0)
    handler = type("Handler", (_Handler,), {"host": host})
    secure, plain = _Server((address, 0), handler), _Server((address, 0), handler)
    secure.socket = context.wrap_socket(
        secure.socket, server_side=True, do_handshake_on_connect=False
    )
    host.port, host.plain = secure.server_address[1], plain.server_address[1]
    threads = [
        threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        for one in (secure, plain)
    ]
    for thread in threads:
        thread.start()
    try:
        yield host
    finally:
        host.gate.set()
        for one in (secure, plain):
            one.shutdown()
            one.server_close()
        for thread in threads:
            thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave, or trust nobody, are no news."""


class _Handler(BaseHTTPRequestHandler):
    host: Host
    protocol_version = "HTTP/1.1"
    timeout = 30

    def answer(self) -> None:
        head = f"{self.requestline}\r\n{self.headers}".encode()
        self.host.heard.append(head)
        body = self._body()
        self.host.heard[-1] = head + body
        path = self.path.partition("?")[0]
        said = {"head": head.decode(), "body": body.decode("latin-1")}
        told = json.dumps(said | {"base64": base64.b64encode(head + body).decode()}).encode()
        if path.startswith("/held"):
            self.host.gate.wait(30)
        if path.startswith("/away") and self.host.elsewhere:
            self._say(302, b"", location=f"{self.host.elsewhere}{path}")
        elif "upgrade" in self.headers:
            self._frame(told)
        else:
            status = 503 if path.startswith("/fail") else 404 if "/info/refs" in path else 200
            self._say(status, told, x_seen=said["head"][:200])

    do_GET = do_POST = do_PUT = do_TRACE = do_HEAD = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # whoever asked may be gone
            self.send_response(status)
            for name, value in headers.items():
                line = " ".join(value.split())
                self.send_header(name.replace("_", "-"), line)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _frame(self, text: bytes) -> None:
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.end_headers()
        self.wfile.write(b"\x81\x7e" + len(text).to_bytes(2, "big") + text)
        while piece := self.rfile.read1(65536):
            self.host.heard.append(b"WEBSOCKET\r\n" + piece)
