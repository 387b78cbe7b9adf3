"""The gRPC server of every process: identity, health, reflection, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from prometheus_client import CollectorRegistry, Histogram

from chassis.errors import CannotStartError
from chassis.grpc import options
from chassis.grpc.interceptor import CallInterceptor, Refusal
from chassis.ids import IdSource, new_id
from chassis.secret import Secret
from chassis.telemetry.metrics import BUCKETS

S = TypeVar("S")


class GrpcServer:
    """Serves on `listen` to callers that hold `token`; only health checks need none.

    With `tls` callers show who they are, too, and each may call what is its own to call.
    Made on the event loop that it serves from: `add` the services, `start`, and at the end `stop`.
    """

    def __init__(
        self,
        listen: str,
        token: Secret,
        *,
        tls: tuple[grpc.ServerCredentials, Refusal] | None = None,
        reflection: bool = True,
        ids: IdSource = new_id,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._listen, self._reflection, self._address = listen, reflection, ""
        self._tls = tls
        told, of = ("drover_rpc_seconds", "Seconds of RPCs served."), ("method", "code")
        seconds = Histogram(*told, of, buckets=BUCKETS, registry=registry)
        interceptors = [CallInterceptor(token, ids, seconds, tls and tls[1])]
        self._server = grpc.aio.server(interceptors=interceptors, options=options.SERVER)
        self._registrar = _Registrar(self._server)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]

    @property
    def address(self) -> str:
        """Where it listens, with the port that it was given; empty before `start`."""
        return self._address

    def add(self, register: Callable[[S, Any], None], servicer: S) -> None:
        """Adds a service before `start`; `register` is its generated `add_…_to_server`."""
        register(servicer, self._registrar)

    async def start(self) -> None:
        """Starts to serve and to report healthy. Raises `CannotStartError` if the port is taken."""
        names = [*self._registrar.services, health.SERVICE_NAME]
        if self._reflection:
            names.append(reflection.SERVICE_NAME)
            servicer = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]
            self.add(reflection_pb2_grpc.add_ServerReflectionServicer_to_server, servicer)
        self.add(health_pb2_grpc.add_HealthServicer_to_server, self._health)
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(self._listen)
            else:
                port = self._server.add_secure_port(self._listen, self._tls[0])
        except RuntimeError as error:
            msg = f"{self._listen} cannot be listened on: is it taken? DROVER_LISTEN names another"
            raise CannotStartError(msg) from error
        host = self._listen.rpartition(":")[0]
        self._address = self._listen if host == "unix" else f"{host}:{port}"
        await self.report(serving=True)
        await self._server.start()
        structlog.get_logger("chassis.grpc").info("listening", address=self._address)

    async def report(self, *, serving: bool) -> None:
        """Answers health checks so from now on; whatever is reported, calls are taken."""
        status = health_pb2.HealthCheckResponse
        for name in ("", *self._registrar.services):
            await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float = 5.0) -> None:
        """Reports NOT_SERVING, refuses new calls, and cancels what still runs after `grace` s."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)


class _Registrar:
    """Stands for the server where generated code registers, and notes the services' names."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.services: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:  # noqa: ANN401
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, _handlers: object) -> None:
        self.services.append(service)  # not passed on: the generic handlers answer for them
