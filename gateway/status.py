"""The endpoints for operators and readers: probes, metrics, and the API's description."""

from __future__ import annotations

import asyncio
from importlib import resources
from typing import TYPE_CHECKING

import orjson
import structlog
from starlette.responses import Response

from chassis.telemetry import metrics
from gateway.errors import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from gateway.upstream import Upstream

_log = structlog.get_logger("gateway.status")

_PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
}


class Fixed:
    """Always the same answer."""

    def __init__(self, body: bytes, media_type: str, headers: Mapping[str, str] = {}) -> None:
        self._body = body
        self._media_type = media_type
        self._headers = headers

    async def __call__(self, _request: Request, _path: Mapping[str, str]) -> Response:
        """The answer."""
        return Response(self._body, headers=self._headers, media_type=self._media_type)


def alive() -> Fixed:
    """`/healthz`: the process answers."""
    return Fixed(orjson.dumps({"status": "ok"}), JSON)


def description(openapi: object) -> Fixed:
    """`/openapi.json`."""
    return Fixed(orjson.dumps(openapi), JSON)


def reference() -> Fixed:
    """`/docs`: a page to read the description, complete in itself."""
    page = resources.files("gateway").joinpath("reference.html").read_bytes()
    return Fixed(page, "text/html", _PAGE_HEADERS)


class Readiness:
    """`/readyz`: 200 only while every service answers its health check now, and the gateway stays.

    Whoever asks is told which do not, and the log when that changes. It takes no key, so however
    many ask, the services are asked by one at a time: the others are told what that one found, if
    it began after they came.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._told: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._stays = True
        self._turn = asyncio.Lock()
        self._began = self._ended = 0

    async def report(self, *, serving: bool) -> None:
        """Answers 503 from now on if this gateway is not to be called any more."""
        self._stays = serving

    async def __call__(self, _request: Request, _path: Mapping[str, str]) -> Response:
        """200, or 503 with the services that do not answer and why."""
        unready = await self._look() if self._stays else {"gateway": "NOT_SERVING"}
        if unready != self._told:
            self._told = unready
            if unready:
                _log.warning("not_ready", waits_for=unready)
            else:
                _log.info("ready")
        if not unready:
            return Response(orjson.dumps({"status": "ready"}), media_type=JSON)
        body = orjson.dumps({"status": "unready", "unready": unready})
        return Response(body, 503, media_type=JSON)

    async def _look(self) -> dict[str, str]:
        wanted = self._began + 1
        async with self._turn:
            if self._ended < wanted:
                self._began += 1
                self._found = await self._upstream.unready()
                self._ended = self._began
        return self._found


class Metrics:
    """`/metrics` for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def __call__(self, _request: Request, _path: Mapping[str, str]) -> Response:
        """The state of all metrics."""
        body, content_type = metrics.render(self._registry)
        return Response(body, media_type=content_type)
