"""A server of the outside on this machine, over HTTPS: it sends back what it was sent."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.doubles.certificates import Authority


@dataclass
class EchoServer:
    """`name` leads to `address`; `ca_file` has the authority that signed for it."""

    name: str
    address: str
    port: int
    ca_file: Path
    heard: list[dict[str, str]] = field(default_factory=list)
    """Headers, in lower case, with `:line` and `:body`, of each request."""

    @property
    def url(self) -> str:
        return f"https://{self.name}:{self.port}"

    @property
    def opening(self) -> str:
        """For DROVER_EGRESS_ALLOW_PRIVATE."""
        return f"{self.address}/32:{self.port}"


@contextmanager
def running_echo(directory: Path) -> Iterator[EchoServer]:
    """Runs it in the name of this machine, which no program takes for loopback's."""
    name = socket.gethostname().lower()
    address = socket.gethostbyname(name)
    authority = Authority("Outside")
    ca_file, chain = directory / "outside.pem", directory / "echo.pem"
    ca_file.write_text(authority.certificate)
    chain.write_text(authority.leaf(name))
    heard: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def echo(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            said = {key.lower(): value for key, value in self.headers.items()}
            said |= {":line": self.requestline, ":body": self.rfile.read(length).decode()}
            heard.append(said)
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = echo  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield EchoServer(name, address, server.server_address[1], ca_file, heard)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
