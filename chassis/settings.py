"""Settings that every process has, read from `DROVER_*` environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from chassis.secret import Secret

_PORTS = range(65_536)


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
    """Where a process keeps its data and listens. Services subclass it with what is theirs."""

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
    reflection: bool = Field(default=True, description="Offer gRPC server reflection.")
    metrics_listen: Listen = Field(
        default="",
        description="Where Prometheus may scrape, host:port; unset: not. `drover up` gives each "
        "process the next port.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of log lines that are written."
    )
