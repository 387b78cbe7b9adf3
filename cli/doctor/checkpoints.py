"""Whether workspaces can be kept where the settings say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from cli.doctor.finding import Finding, fine, missing, optional
from storage.objects import ObjectsAway, open_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE = "DROVER_HANDS_CHECKPOINTS"
_SUBJECT = "checkpoints"
_PATIENCE = 20.0  # s


def checkpoints(environ: Mapping[str, str]) -> list[Finding]:
    """Whether the store can be written and read; nothing where none is named."""
    url = environ.get(STORE)
    if not url:
        return []
    try:
        objects = open_objects(url, environ)
    except CannotStartError as error:
        return [missing(_SUBJECT, str(error), f"set {STORE} right, or unset it")]

    async def probe() -> None:
        async with asyncio.timeout(_PATIENCE):
            await objects.probe()

    try:
        asyncio.run(probe())
    except (ObjectsAway, TimeoutError) as error:
        why = str(error) or f"it does not answer within {_PATIENCE:g} s"
        detail = f"{url}: {why}; workspaces are on this disk alone, and none can be restored"
        remedy = "see that it is up, may be written, and that AWS_… name it and its credentials"
        return [optional(_SUBJECT, detail, remedy)]
    return [fine(_SUBJECT, f"workspaces are kept in {url}")]
