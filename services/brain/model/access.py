"""Which model a process uses: the one its environment names, else the rehearsal model."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from chassis.secret import Secret
from services.brain.model.anthropic_client import AnthropicModelClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_FEDERATION_RULE_ID",
)
_BASE_URL = "ANTHROPIC_BASE_URL"


def is_rehearsal(environ: Mapping[str, str]) -> bool:
    """Whether `environ` names no model: neither a credential nor a base URL.

    A profile that merely lies on the disk does not count: starting Drover must not spend on it.
    """
    return not any(environ.get(name) for name in (*_CREDENTIALS, _BASE_URL))


@asynccontextmanager
async def open_model(environ: Mapping[str, str]) -> AsyncIterator[AnthropicModelClient]:
    """The client of the model that `environ` names; closed on leaving.

    `environ` decides; the SDK then reads the process's own environment, so it must be that one.
    A base URL without a credential is a server that wants none: it is sent a placeholder, never a
    credential that the SDK would find on the disk.
    """
    if is_rehearsal(environ):
        from services.brain.model.rehearsal.server import rehearsal_server  # noqa: PLC0415

        async with (
            rehearsal_server() as base_url,
            AnthropicModelClient(api_key=Secret("rehearsal"), base_url=base_url) as client,
        ):
            yield client
        return
    anonymous = not any(environ.get(name) for name in _CREDENTIALS)
    async with AnthropicModelClient(api_key=Secret("none") if anonymous else None) as client:
        yield client
