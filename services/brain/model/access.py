"""Which model a process uses: the one its environment names, else the rehearsal model."""

from __future__ import annotations

from contextlib import asynccontextmanager
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import CannotStartError
from chassis.secret import Secret
from services.brain.model.anthropic_client import AnthropicModelClient
from services.brain.model.bedrock import AWS_BEDROCK, BOTO3, Bedrock
from services.brain.model.platform import AnthropicApi, MessagesApi
from services.brain.model.vertex import GOOGLE_AUTH, Vertex

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from services.brain.model.platform import Platform

_CREDENTIALS: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_FEDERATION_RULE_ID",
)
_BASE_URL: Final = "ANTHROPIC_BASE_URL"

_log = structlog.get_logger("brain.model")


class Provider(StrEnum):
    """Who serves the models, by the SDK's client for it."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    BEDROCK_MANTLE = "bedrock_mantle"
    AWS = "aws"
    VERTEX = "vertex"
    GOOGLE_CLOUD = "google_cloud"
    FOUNDRY = "foundry"


_PLATFORMS: Final[Mapping[Provider, Callable[[], Platform]]] = MappingProxyType(
    {
        Provider.ANTHROPIC: AnthropicApi,
        Provider.BEDROCK: Bedrock,
        Provider.VERTEX: Vertex,
        Provider.BEDROCK_MANTLE: lambda: MessagesApi(
            "anthropic.lib.bedrock",
            "AsyncAnthropicBedrockMantle",
            advice="AWS_REGION and the AWS credentials (or AWS_BEARER_TOKEN_BEDROCK)",
            provider=AWS_BEDROCK,
            libraries=BOTO3,
        ),
        Provider.AWS: lambda: MessagesApi(
            "anthropic",
            "AsyncAnthropicAWS",
            advice="AWS_REGION, ANTHROPIC_AWS_WORKSPACE_ID and the AWS credentials "
            "(or ANTHROPIC_AWS_API_KEY)",
            libraries=BOTO3,
        ),
        Provider.GOOGLE_CLOUD: lambda: MessagesApi(
            "anthropic.lib.google_cloud",
            "AsyncAnthropicGoogleCloud",
            advice="ANTHROPIC_GOOGLE_CLOUD_PROJECT, ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID and the "
            "Google credentials (GOOGLE_APPLICATION_CREDENTIALS)",
            libraries=GOOGLE_AUTH,
        ),
        Provider.FOUNDRY: lambda: MessagesApi(
            "anthropic",
            "AsyncAnthropicFoundry",
            advice="ANTHROPIC_FOUNDRY_API_KEY and ANTHROPIC_FOUNDRY_RESOURCE",
        ),
    }
)


def is_rehearsal(environ: Mapping[str, str]) -> bool:
    """Whether `environ` names no model: neither a credential nor a base URL.

    A profile that merely lies on the disk does not count: starting Drover must not spend on it.
    """
    return not any(environ.get(name) for name in (*_CREDENTIALS, _BASE_URL))


@asynccontextmanager
async def open_model(
    environ: Mapping[str, str], provider: Provider = Provider.ANTHROPIC
) -> AsyncIterator[AnthropicModelClient]:
    """The client of the model that `environ` names at `provider`; closed on leaving.

    `environ` decides; the SDK then reads the process's own environment, so it must be that one.
    A base URL without a credential is a server that wants none: it is sent a placeholder, never a
    credential that the SDK would find on the disk. Raises `CannotStartError` where a library of the
    provider is missing.
    """
    if provider is not Provider.ANTHROPIC:
        platform = _PLATFORMS[provider]()
        _insist_on(platform.libraries, provider)
        async with AnthropicModelClient(platform) as client:
            yield client
        return
    if is_rehearsal(environ):
        from services.brain.model.rehearsal.server import rehearsal_server  # noqa: PLC0415

        _log.info(
            "rehearsal_model",
            effect="agents use a scripted, offline model: set ANTHROPIC_API_KEY, or "
            "ANTHROPIC_BASE_URL, or DROVER_MODEL_PROVIDER",
        )
        async with (
            rehearsal_server() as base_url,
            AnthropicModelClient(
                AnthropicApi(api_key=Secret("rehearsal"), base_url=base_url)
            ) as client,
        ):
            yield client
        return
    anonymous = not any(environ.get(name) for name in _CREDENTIALS)
    api = AnthropicApi(api_key=Secret("none") if anonymous else None)
    async with AnthropicModelClient(api) as client:
        yield client


def _insist_on(libraries: Mapping[str, str], provider: Provider) -> None:
    for library, extra in libraries.items():
        if not _is_there(library):
            msg = (
                f"models at {provider} (DROVER_MODEL_PROVIDER) need {library}, which is not "
                f"installed: pip install 'drover[{extra}]'"
            )
            raise CannotStartError(msg)


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
