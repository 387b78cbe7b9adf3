"""A web site on loopback, with a search engine that speaks as SearXNG does, in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(slots=True)
class WebSite:
    """Serves `pages` by path: a type and a body, or where to go instead."""

    port: int
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    found: list[dict[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    # Answers wait for it, if there is one.
    gate: threading.Event | None = None

    @property
    def url(self) -> str:
        """Its address, without a slash."""
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """As if it were new."""
        self.gate = None
        for kept in (self.pages, self.found, self.asked, self.queries, self.keys):
            kept.clear()


@contextmanager
def running_web_site() -> Iterator[WebSite]:
    """Serves for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/search":
                site.queries.append(parse_qs(url.query)["q"][0])
                site.keys.append(self.headers.get("authorization", ""))
                self._answer("application/json", json.dumps({"results": site.found}))
                return
            site.asked.append(self.path)
            if site.gate is not None:
                site.gate.wait(30)
            kind, body = site.pages.get(self.path, ("", ""))
            if kind == "location":
                self.send_response(302)
                self.send_header("Location", body)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif kind:
                self._answer(kind, body)
            else:
                self.send_error(404)

        def _answer(self, kind: str, body: str) -> None:
            data = body.encode()
            with suppress(ConnectionError):  # whoever asked may be dead
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = WebSite(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
