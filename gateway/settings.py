"""The gateway's settings, read from `DROVER_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from identity.settings import PeerSettings


class GatewaySettings(PeerSettings):
    """Where the gateway listens, whom it lets in, and how patient it is."""

    listen: str = Field(
        default="127.0.0.1:8080", description="HTTP address to listen on; port 0 takes a free one."
    )
    api_key: SecretStr | None = Field(
        default=None, description="The API key; default what the key file holds."
    )
    api_key_file: Path = Field(
        default_factory=lambda data: data["data_dir"] / "run" / "api_key",
        description="API keys, one a line; made with a new key if missing.",
    )
    key_cache_seconds: float = Field(
        default=5.0, ge=0, description="How long a stored API key is known before it is asked of."
    )
    requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Requests a minute of an API key without a limit of its own; default none.",
    )
    failed_keys_per_minute: int = Field(
        default=60, ge=1, description="Keys a minute that one address may show in vain."
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Names, beside loopback, under which clients may call."
    )
    keepalive_seconds: float = Field(
        default=15.0, gt=0, description="Silence on a stream before a keep-alive comment."
    )
    stall_seconds: float = Field(
        default=60.0,
        gt=0,
        description="How long a stream's reader may not read, and a file's hardly so.",
    )
    resume_seconds: float = Field(
        default=30.0, ge=0, description="How long a stream outlives the session service."
    )
    recheck_seconds: float = Field(
        default=5.0,
        gt=0,
        description="How often a key is asked if its stream or transfer may go on.",
    )
    request_seconds: float = Field(
        default=30.0, gt=0, description="Deadline of the RPC behind a request."
    )
    max_body_bytes: int = Field(
        default=32 * 1024 * 1024, gt=0, description="Largest request body (ENDPOINTS §0)."
    )
    max_file_bytes: int = Field(
        default=500 * 1024 * 1024, gt=0, description="Largest file to upload (ENDPOINTS §0)."
    )
    max_skill_bytes: int = Field(
        default=30 * 1024 * 1024,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Bytes of a skill at most, unpacked; as the registry has it.",
    )

    max_uploads: int = Field(
        default=64, ge=1, description="Uploads that may be on their way at once."
    )
    max_downloads: int = Field(
        default=64, ge=1, description="Downloads that may be on their way at once."
    )

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
