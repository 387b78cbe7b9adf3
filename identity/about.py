"""What a process says of itself: its name, its release, and since when it serves."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import socket
from importlib import metadata
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.clock import SystemClock
from drover.about.v1 import about_service_pb2 as pb
from drover.about.v1.about_service_pb2_grpc import (
    AboutServiceServicer,
    add_AboutServiceServicer_to_server,
)

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.grpc.server import GrpcServer

UNINSTALLED: Final = "0.0+uninstalled"
"""The version of a source tree that is not installed."""


def version() -> str:
    """The release that runs here."""
    try:
        return metadata.version("drover")
    except metadata.PackageNotFoundError:
        return UNINSTALLED


def tell(server: GrpcServer, name: str) -> None:
    """Has a server that has not started yet say what it is."""
    server.add(add_AboutServiceServicer_to_server, AboutRpc(name, SystemClock()))


class AboutRpc(AboutServiceServicer):
    """AboutService, of the process `name`, which begins to serve now."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._told = pb.GetAboutResponse(
            name=name, version=version(), started_at=_now(clock), host=socket.gethostname()
        )

    async def GetAbout(self, _request: pb.GetAboutRequest, _context: object) -> pb.GetAboutResponse:
        """What this process is."""
        answer = pb.GetAboutResponse(now=_now(self._clock))
        answer.MergeFrom(self._told)
        return answer


def _now(clock: Clock) -> Timestamp:
    now = Timestamp()
    now.FromDatetime(clock.now())
    return now
