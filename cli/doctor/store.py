"""Whether a store of objects does what it is there for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from storage.objects import ObjectsAway, open_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATIENCE: Final = 20.0  # s


def trouble(url: str, environ: Mapping[str, str]) -> str | None:
    """What keeps an object from being stored, read and deleted there, if anything does.

    Raises `CannotStartError` for a URL that is none.
    """
    objects = open_objects(url, environ)

    async def probe() -> None:
        async with asyncio.timeout(_PATIENCE):
            await objects.probe()

    try:
        asyncio.run(probe())
    except (ObjectsAway, TimeoutError) as error:
        return str(error) or f"it does not answer within {_PATIENCE:g} s"
    return None
