"""An S3 of its own: real HTTP, in memory, as much of the protocol as checkpoints need.

Signatures are looked at for their key, not computed again: that is the library's matter.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY = "AKIATESTTESTTEST"
SECRET_KEY = "a/secret+that-is/never-told"  # noqa: S105
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


class S3:
    """What is stored, by `bucket/key`, and what was asked. `status` other than 0 refuses all."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.requests: list[str] = []
        self.numbers = itertools.count()
        """Of uploads: two that begin at the same time are not the same one."""
        self.status = 0
        self.cut_after = 0
        """Bytes of an answer after which the connection breaks; 0 for never."""
        self.held = ""
        """Requests that begin like this (`"PUT /bucket"`) wait for `gate`."""
        self.gate = threading.Event()
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it has in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "eu-test-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    port = 0


@contextmanager
def running_s3() -> Iterator[S3]:
    """A server that ends with the block."""
    s3 = S3()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"s3": s3}))
    s3.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield s3
    finally:
        s3.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away in the middle: that is what some tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    s3: S3

    def log_message(self, *_: object) -> None:
        """Tests read `requests`."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._admitted():
            return
        if "uploadId" in self.query:
            upload = self.s3.uploads.get(self.query["uploadId"])
            if upload is None:
                self._refuse(404, "NoSuchUpload")
                return
            upload[1][int(self.query["partNumber"])] = body
        else:
            self.s3.objects[self.name] = body
        self._answer(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})  # noqa: S324

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._admitted():
            return
        if "uploads" in self.query:
            with self.s3.lock:
                upload = f"upload-{next(self.s3.numbers)}"
                self.s3.uploads[upload] = (self.name, {})
            self._xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            return
        name, parts = self.s3.uploads.pop(self.query["uploadId"], ("", {}))
        if not parts:
            self._refuse(404, "NoSuchUpload")
            return
        self.s3.objects[name] = b"".join(part for _, part in sorted(parts.items()))
        self._xml("CompleteMultipartUploadResult", "<ETag>&quot;whole&quot;</ETag>")

    def do_DELETE(self) -> None:
        if not self._admitted():
            return
        if "uploadId" in self.query:
            self.s3.uploads.pop(self.query["uploadId"], None)
        else:
            self.s3.objects.pop(self.name, None)
        self._answer(204)

    def do_HEAD(self) -> None:
        self._get(with_body=False)

    def do_GET(self) -> None:
        if "list-type" in self.query_of(self.path):
            if self._admitted():
                self._list()
        else:
            self._get(with_body=True)

    def _get(self, *, with_body: bool) -> None:
        if not self._admitted():
            return
        body = self.s3.objects.get(self.name)
        if body is None:
            self._refuse(404, "NoSuchKey")
            return
        status, headers = 200, {"ETag": '"e"', "Last-Modified": "Sun, 29 Nov 2026 20:00:00 GMT"}
        if (wanted := self.headers.get("Range")) is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if int(first) >= len(body):
                self._refuse(416, "InvalidRange")
                return
            end = min(int(last) + 1 if last else len(body), len(body))
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(body)}"
            status, body = 206, body[int(first) : end]
        self._answer(status, body, headers, with_body=with_body)

    def _list(self) -> None:
        bucket, prefix = self.name.split("/")[0], self.query.get("prefix", "")
        keys = [name.partition("/")[2] for name in sorted(self.s3.objects)]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>1</Size>"
            "<LastModified>2026-11-29T20:00:00.000Z</LastModified><ETag>e</ETag></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        self._xml("ListBucketResult", f"<Name>{bucket}</Name>{entries}")

    @staticmethod
    def query_of(path: str) -> dict[str, str]:
        parsed = parse_qs(urlsplit(path).query, keep_blank_values=True)
        return {key: values[0] for key, values in parsed.items()}

    def _admitted(self) -> bool:
        self.name = unquote(urlsplit(self.path).path).lstrip("/")
        self.query = self.query_of(self.path)
        with self.s3.lock:
            self.s3.requests.append(f"{self.command} {self.path}")
        if self.s3.held and f"{self.command} {self.path}".startswith(self.s3.held):
            self.s3.gate.wait(30)
        signed = self.headers.get("Authorization", "")
        if f"Credential={ACCESS_KEY}/" not in signed:
            self._refuse(403, "InvalidAccessKeyId")
        elif self.s3.status:
            self._refuse(self.s3.status, "Refused", f"{signed} {ACCESS_KEY} {SECRET_KEY}")
        else:
            return True
        return False

    def _refuse(self, status: int, code: str, message: str = "") -> None:
        self._xml("Error", f"<Code>{code}</Code><Message>{escape(message)}</Message>", status)

    def _xml(self, tag: str, inside: str, status: int = 200) -> None:
        body = f"{_XML}<{tag}>{inside}</{tag}>".encode()
        self._answer(status, body, {"Content-Type": "application/xml"})

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not with_body or self.command == "HEAD":
            return
        cut = self.s3.cut_after
        if cut and status < 300 and len(body) > cut:
            self.wfile.write(body[:cut])
            self.close_connection = True
            return
        self.wfile.write(body)
