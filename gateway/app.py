"""The ASGI application: what every HTTP request passes on its way to its endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import StatusCode
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response

from chassis.context import DEFAULT_WORKSPACE, CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.telemetry import tracing
from gateway import errors
from gateway.auth import EndedKeyError
from gateway.transcode.template import NoRouteError, Router, WrongVerbError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from gateway.access import Access, Terms
    from gateway.auth import Caller, HostNames
    from gateway.quotas import Quota, Quotas
    from gateway.traffic import Traffic

Endpoint = Callable[[Request, Mapping[str, str]], Awaitable["ASGIApp"]]

_UNMATCHED = "unmatched"
_SERVER_FAULT = 500
_VERBS = frozenset({"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Served:
    """An endpoint with what must hold before it is called.

    Those with `terms` need a key that fulfils them; they find whose it is in
    `request.state.caller`. `any_host` ones answer under whatever name they are called, for probes.
    """

    template: str
    endpoint: Endpoint
    terms: Terms | None = None
    any_host: bool = False


class GatewayApp:
    """Routes, authenticates, traces, logs and counts; turns every failure into the envelope."""

    def __init__(
        self,
        router: Router[Served],
        access: Access,
        hosts: HostNames,
        quotas: Quotas,
        *,
        traffic: Traffic,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._router = router
        self._access = access
        self._hosts = hosts
        self._quotas = quotas
        self._traffic = traffic
        self._clock = clock
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        started = self._clock.monotonic()
        request = Request(scope, receive)
        answer = _Answer(send, self._ids("req"))
        served, path = self._find(request)
        with call_context(CallContext(request_id=answer.request_id)):
            if tracing.enabled():
                await self._serve_traced(request, served, path, answer)
            else:
                await self._serve(request, served, path, answer)
            verb = request.method if request.method in _VERBS else "OTHER"
            seconds = self._clock.monotonic() - started
            self._traffic.note(
                verb,
                served.template,
                scope["path"],
                answer.status,
                seconds,
                worker=answer.worker,
                api_key=answer.api_key,
            )

    def _find(self, request: Request) -> tuple[Served, Mapping[str, str]]:
        try:
            return self._router.find(request.method, request.scope["raw_path"])
        except NoRouteError:
            return Served(_UNMATCHED, _no_route), {}
        except WrongVerbError as wrong:
            return Served(_UNMATCHED, partial(_wrong_verb, wrong.allowed)), {}

    async def _serve_traced(
        self, request: Request, served: Served, path: Mapping[str, str], answer: _Answer
    ) -> None:
        attributes = {
            "http.request.method": request.method,
            "http.route": served.template,
            "url.path": request.scope["path"],
            "url.scheme": request.scope["scheme"],
        }
        name = f"{request.method} {served.template}"
        with tracing.server_span(name, request.headers.items(), attributes):
            await self._serve(request, served, path, answer)
            span = trace.get_current_span()
            span.set_attribute("http.response.status_code", answer.status)
            if answer.status >= _SERVER_FAULT:
                span.set_status(StatusCode.ERROR)

    async def _serve(
        self, request: Request, served: Served, path: Mapping[str, str], answer: _Answer
    ) -> None:
        response: ASGIApp
        try:
            caller = await self._admit(request, served, path, answer)
        except Exception as error:  # noqa: BLE001  # mapped, logged and sent
            response = errors.response(errors.explain(error, self._ids), answer.request_id)
            await response(request.scope, request.receive, answer)
            return
        if caller is not None:
            request.state.caller = caller
            answer.workspace_id = caller.workspace_id
        workspace_id = answer.workspace_id or DEFAULT_WORKSPACE
        with call_context(CallContext(workspace_id, answer.request_id)):
            try:
                response = await served.endpoint(request, path)
            except Exception as error:  # noqa: BLE001  # mapped, logged and sent
                response = errors.response(errors.explain(error, self._ids), answer.request_id)
            await response(request.scope, request.receive, answer)

    async def _admit(
        self, request: Request, served: Served, path: Mapping[str, str], answer: _Answer
    ) -> Caller | None:
        """Whose request it is; `None` where no key is needed."""
        headers = request.headers
        if not served.any_host:
            self._hosts.check(", ".join(headers.getlist("host")))
        if served.terms is None:
            return None
        client = request.scope.get("client")
        try:
            caller = await self._access.identify(headers, client[0] if client else "")
        except EndedKeyError as ended:  # whoever still shows it is to be found in the log
            answer.api_key = ended.key_id
            raise
        answer.worker, answer.api_key = caller.worker, caller.api_key
        answer.quota = self._quotas.take(caller)
        if answer.quota is not None:
            answer.quota.check()
        await self._access.admit(caller, headers, served.terms, path)
        return caller


async def _no_route(_request: Request, _path: Mapping[str, str]) -> Response:
    raise DroverError(Reason.NOT_FOUND, "there is no such route")


async def _wrong_verb(
    allowed: tuple[str, ...], request: Request, _path: Mapping[str, str]
) -> Response:
    return errors.wrong_verb(request.method, allowed, current_call().request_id)


class _Answer:
    """Sends a response with the ids of request and workspace, and what is left of its key's quota.

    It remembers the status, and whose request it was.
    """

    __slots__ = ("_send", "api_key", "quota", "request_id", "status", "worker", "workspace_id")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.workspace_id = self.worker = self.api_key = ""
        self.quota: Quota | None = None
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["request-id"] = self.request_id
            if self.workspace_id:
                headers["anthropic-workspace-id"] = self.workspace_id
            if self.quota is not None:
                headers.update(self.quota.headers)
        await self._send(message)
