"""A process among the others: the server that it runs, and the channels that it opens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

import structlog
from prometheus_client import Gauge

from chassis.errors import CannotStartError
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from identity.credentials import Credentials
from identity.reach import stays_here

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc.aio
    from prometheus_client import CollectorRegistry

    from chassis.secret import Secret
    from identity.settings import PeerSettings

_SOON: Final = timedelta(days=30)
_MAKE: Final = (
    "make certificates with `drover certs create`, and name this process's directory with "
    "DROVER_TLS_DIR"
)
_log = structlog.get_logger("identity")


@dataclass(frozen=True, slots=True)
class Peers:
    """What this process shows the others: the installation's secret, and its certificate."""

    token: Secret
    tls: Credentials | None = None

    @classmethod
    def of(
        cls, settings: PeerSettings, caller: str, registry: CollectorRegistry | None = None
    ) -> Self:
        """As the settings of the process `caller` have it. Raises `CannotStartError`.

        How long its certificate is valid is shown in `registry`.
        """
        token = settings.token()
        if settings.tls_dir is None:
            return cls(token)
        tls = Credentials.read(settings.tls_dir, caller)
        if tls.expires - datetime.now(UTC) < _SOON:
            _log.warning(
                "certificate_expires_soon",
                expires=tls.expires.isoformat(),
                effect="peers refuse this process from then on: `drover certs renew`, and restart",
            )
        if registry is not None:
            name = "drover_certificate_expiry_timestamp_seconds"
            gauge = Gauge(name, "When this process's certificate expires.", registry=registry)
            gauge.set(tls.expires.timestamp())
        return cls(token, tls)

    def keep_here(self, address: str, what: str) -> None:
        """Raises `CannotStartError` if secrets would leave the machine in clear, by `what`."""
        if self.tls is None and not stays_here(address):
            msg = f"{what} is {address}, where secrets would pass in clear: {_MAKE}"
            raise CannotStartError(msg)

    def channel(
        self, address: str, callee: str, *, deadline: float = 30.0, retried: Sequence[str] = ()
    ) -> grpc.aio.Channel:
        """A channel (`open_channel`) to `callee`, who must show that this is who it is.

        Raises `CannotStartError` where the secret would leave the machine in clear.
        """
        self.keep_here(address, f"the address of the {callee} service")
        tls = None if self.tls is None else self.tls.channel(callee)
        return open_channel(address, self.token, deadline=deadline, retried=retried, tls=tls)

    def server(
        self, settings: PeerSettings, registry: CollectorRegistry | None = None
    ) -> GrpcServer:
        """A server of this process's. Raises `CannotStartError` for one in clear off loopback."""
        self.keep_here(settings.listen, "DROVER_LISTEN")
        return GrpcServer(
            settings.listen,
            self.token,
            tls=None if self.tls is None else self.tls.server(),
            reflection=settings.reflection,
            registry=registry,
        )
