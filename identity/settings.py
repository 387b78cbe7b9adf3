"""Settings of who a process is among the others, and of where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from chassis.errors import CannotStartError
from chassis.secret import Secret
from chassis.settings import Settings

_STOP_SECONDS: Final = 10.0
"""To answer what is under way, to hand on what is not, and to close what is open."""


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part] if isinstance(value, str) else value


class PeerSettings(Settings):
    """What a process shows the others, and where it finds them.

    Addresses are gRPC targets, `host:port`, or those of several replicas (`grpc.target.resolve`).
    """

    token_file: Path = Field(
        default_factory=lambda data: data["data_dir"] / "run" / "token",
        description="File with the installation's secret. Default: DATA_DIR/run/token.",
    )
    tls_dir: Path | None = Field(
        default=None,
        description="Directory with ca.crt, tls.crt and tls.key, by which this process and the "
        "others know each other (docs/identity.md). Without it all of them stay on loopback.",
    )
    registry_address: str = Field(default="", description="Where the registry service listens.")
    session_address: str = Field(
        default="", description="Where the session services listen, comma separated."
    )
    hands_address: str = Field(default="", description="Where the hands service listens.")
    vault_proxy_address: str = Field(default="", description="Where the vault proxy listens.")
    brain_addresses: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(), description="Where the brains listen, comma separated."
    )

    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        le=600,
        description="Seconds that a process which is told to stop goes on to take calls, while its "
        "health says no: what your load balancer takes to notice (docs/operations.md).",
    )

    @property
    def stop_seconds(self) -> float:
        """Seconds within which the process has stopped, from its signal on."""
        return _STOP_SECONDS + self.drain_seconds

    def token(self) -> Secret:
        """Reads the installation's secret (ARCHITECTURE §7). Raises `CannotStartError`."""
        try:
            secret = self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            msg = (
                f"the installation's secret cannot be read from {self.token_file} "
                f"({why}): name its file with DROVER_TOKEN_FILE"
            )
            raise CannotStartError(msg) from error
        if not secret:
            msg = (
                f"{self.token_file} is empty, and everybody would have the installation's secret: "
                "put one there, the same for every process"
            )
            raise CannotStartError(msg)
        return Secret(secret)

    def address_of(self, service: str) -> str:
        """Where a service listens. Raises `CannotStartError` if that was not set."""
        found: str = getattr(self, f"{service}_address")
        if not found:
            msg = f"DROVER_{service.upper()}_ADDRESS is not set: name where that service listens"
            raise CannotStartError(msg)
        return found
