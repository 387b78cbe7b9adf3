"""Every process behind the gateway, replica by replica: whether it serves, what it is, since when.

Requests go to whichever replica answers. An operator wants to know of each.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.settings import host_and_port
from drover.about.v1 import about_service_pb2
from drover.about.v1.about_service_pb2_grpc import AboutServiceStub
from identity.reach import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import grpc.aio

    from chassis.clock import Clock

SERVING: Final = "SERVING"
_PATIENCE: Final = 2.0
_NAME: Final = "dns:"
_NUMBERED: Final = "-"


@dataclass(slots=True)
class Process:
    """One replica. Without an answer only `service`, `address` and `state` are known."""

    service: str
    address: str
    state: str = SERVING
    about: about_service_pb2.GetAboutResponse = field(
        default_factory=about_service_pb2.GetAboutResponse
    )
    ahead: float = 0.0
    """Seconds by which its machine's clock is ahead of ours."""

    def shown(self) -> dict[str, Any]:
        """As JSON has it."""
        known = self.about.HasField("started_at")
        return {
            "service": self.service,
            "name": self.about.name or self.service,
            "address": self.address,
            "host": self.about.host or None,
            "state": self.state,
            "version": self.about.version or None,
            "started_at": self.about.started_at.ToJsonString() if known else None,
            "clock_ahead_seconds": round(self.ahead, 3) if known else None,
        }


class Processes:
    """Asks all of them. `addresses` are those that requests go to; `open_channel` is given the
    address of one replica and what service it is of.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        open_channel: Callable[[str, str], grpc.aio.Channel],
        clock: Clock,
    ) -> None:
        self._addresses = addresses
        self._open_channel = open_channel
        self._clock = clock

    async def look(self) -> list[Process]:
        """What each of them says now, in the order of the settings; raises nothing."""
        services = [(kind(name), name) for name in self._addresses]
        found = await asyncio.gather(*(_replicas(self._addresses[name]) for _, name in services))
        return list(
            await asyncio.gather(
                *(
                    self._ask(Process(service, address))
                    for (service, _), replicas in zip(services, found, strict=True)
                    for address in replicas
                )
            )
        )

    async def _ask(self, process: Process) -> Process:
        async with self._open_channel(process.address, process.service) as channel:
            try:
                health = health_pb2_grpc.HealthStub(channel)
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE)
                process.state = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
                about, before = AboutServiceStub(channel), self._clock.now()
                process.about = await about.GetAbout(
                    about_service_pb2.GetAboutRequest(), timeout=_PATIENCE
                )
                middle = before + (self._clock.now() - before) / 2
                there = process.about.now.ToDatetime(middle.tzinfo)
                process.ahead = (there - middle).total_seconds()
            except grpc.RpcError as error:
                # One of a release that does not know the question is there all the same.
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    process.state = error.code().name
        return process


def kind(process: str) -> str:
    """The service that a process is one of: `brain` of `brain-2`."""
    return process.partition(_NUMBERED)[0]


async def _replicas(address: str) -> list[str]:
    """The address of each replica that an address stands for; the name that leads nowhere."""
    found: list[str] = []
    for one in filter(None, map(str.strip, address.split(","))):
        found.extend(await _look_up(one) if one.startswith(_NAME) else [one])
    return found


async def _look_up(name: str) -> list[str]:
    host, port = host_and_port(name.removeprefix(_NAME).rpartition("/")[2])
    try:
        async with asyncio.timeout(_PATIENCE):
            return await look_up(host, port)
    except (OSError, TimeoutError):
        return [name]
