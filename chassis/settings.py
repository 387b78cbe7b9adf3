"""Settings that every process has, read from `DROVER_*` environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from chassis.errors import CannotStartError
from chassis.secret import Secret

_PORTS = range(65_536)


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part] if isinstance(value, str) else value


def _hide(value: object) -> object:
    return (Secret(value.strip()) if value.strip() else None) if isinstance(value, str) else value


def host_and_port(value: str) -> tuple[str, int]:
    """Both parts of `host:port`. Raises `ValueError`."""
    host, _, port = value.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) in _PORTS):
        msg = "must be host:port"
        raise ValueError(msg)
    return host, int(port)


def _listenable(value: str) -> str:
    if value and not value.startswith("unix:"):
        host_and_port(value)
    return value


Listen = Annotated[str, AfterValidator(_listenable)]
"""Where to listen, `host:port`."""
SecretText = Annotated[Secret | None, BeforeValidator(_hide)]
"""A setting that must not be shown; empty is as good as not set."""


class Settings(BaseSettings):
    """Where a process keeps its data, listens, and finds the other services.

    Services subclass it with what is theirs alone. Addresses are gRPC targets, `host:port`, or
    those of several replicas (`grpc.target.resolve`).
    """

    model_config = SettingsConfigDict(
        env_prefix="DROVER_",
        frozen=True,
        extra="ignore",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    data_dir: Path = Field(default=Path("drover-data"), description="Directory of durable data.")
    listen: Listen = Field(
        default="127.0.0.1:0", description="Where to listen; port 0 is a free one."
    )
    token_file: Path = Field(
        default_factory=lambda data: data["data_dir"] / "run" / "token",
        description="File with the installation's secret. Default: DATA_DIR/run/token.",
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
    reflection: bool = Field(default=True, description="Offer gRPC server reflection.")
    metrics_listen: Listen = Field(
        default="",
        description="Where Prometheus may scrape, host:port; unset: not. `drover up` gives each "
        "process the next port.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of log lines that are written."
    )

    def token(self) -> Secret:
        """Reads the installation's secret (ARCHITECTURE §7). Raises `CannotStartError`."""
        try:
            return Secret(self.token_file.read_text(encoding="utf-8").strip())
        except OSError as error:
            msg = (
                f"the installation's secret cannot be read from {self.token_file} "
                f"({error.strerror}): name its file with DROVER_TOKEN_FILE"
            )
            raise CannotStartError(msg) from error

    def address_of(self, service: str) -> str:
        """Where a service listens. Raises `CannotStartError` if that was not set."""
        found: str = getattr(self, f"{service}_address")
        if not found:
            msg = f"DROVER_{service.upper()}_ADDRESS is not set: name where that service listens"
            raise CannotStartError(msg)
        return found
