"""A collector that takes traces, and says at `/` which services each of them spans."""

from __future__ import annotations

import json
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CONFIGURATION = Path("/etc/otelcol/config.yaml")
SERVICES: defaultdict[str, set[str]] = defaultdict(set)
"""By trace."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    SERVICES[span.trace_id.hex()].add(names["service.name"])
        self.answer(b"")

    def do_GET(self) -> None:
        traces = {trace: sorted(names) for trace, names in list(SERVICES.items())}
        self.answer(json.dumps(traces).encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    assert "0.0.0.0:4318" in CONFIGURATION.read_text()
    ThreadingHTTPServer(("0.0.0.0", 4318), Handler).serve_forever()  # noqa: S104
