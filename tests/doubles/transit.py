"""OpenBao's transit engine over real HTTP, as far as a client of its keys can tell.

Paths, bodies and statuses: developer.hashicorp.com/vault/api-docs/secret/transit.
"""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "hvs.token"  # noqa: S105  # the double's


class Transit:
    """One engine with one key; what happens to it is set from outside."""

    def __init__(self) -> None:
        self.versions = [AESGCM.generate_key(256)]
        self.token = TOKEN
        self.status = 0
        """A status that every request is answered with instead."""
        self.stalled = threading.Event()
        """Set: requests wait until `released`."""
        self.released = threading.Event()
        self.requests: list[str] = []
        self.url = ""

    def answer(self, operation: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """What an operation on the key answers."""
        bound = base64.b64decode(body.get("associated_data", ""))
        match operation:
            case "encrypt":
                plain = base64.b64decode(body["plaintext"])
                nonce = len(self.requests).to_bytes(12)
                sealed = nonce + AESGCM(self.versions[-1]).encrypt(nonce, plain, bound)
                text = f"vault:v{len(self.versions)}:{base64.b64encode(sealed).decode()}"
                return 200, {"data": {"ciphertext": text, "key_version": len(self.versions)}}
            case "decrypt":
                _, version, text = body["ciphertext"].split(":")
                sealed = base64.b64decode(text)
                key = AESGCM(self.versions[int(version[1:]) - 1])
                try:
                    plain = key.decrypt(sealed[:12], sealed[12:], bound)
                except InvalidTag:
                    return 400, {"errors": ["cipher: message authentication failed"]}
                return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}
            case "rotate":
                self.versions.append(AESGCM.generate_key(256))
                return 200, {"data": {}}
            case _:
                return 200, {"data": {"latest_version": len(self.versions)}}


@contextmanager
def running_transit() -> Iterator[Transit]:
    """An engine on loopback, with the key `drover`."""
    transit = Transit()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            transit.requests.append(self.path)
            if transit.stalled.is_set():
                transit.released.wait(30)
            status, answer = transit.status, {"errors": ["as the test says"]}
            if not status and self.headers.get("X-Vault-Token") != transit.token:
                status, answer = 403, {"errors": ["permission denied"]}
            if not status:
                parts = self.path.removeprefix("/v1/transit/").split("/")
                known = {"keys/drover": "read", "keys/drover/rotate": "rotate"}
                operation = known.get("/".join(parts), parts[0])
                status, answer = transit.answer(operation, json.loads(body or b"{}"))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    transit.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield transit
    finally:
        transit.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
