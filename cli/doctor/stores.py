"""Whether the stores of objects that the settings name do what they are there for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError
from cli.doctor.finding import Finding, fine, missing, optional
from storage.objects import ObjectsAway, open_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHECKPOINTS: Final = "DROVER_HANDS_CHECKPOINTS"
FILES: Final = "DROVER_FILES_URL"

_PATIENCE: Final = 20.0  # s


_REMEDY: Final = "see that it is up, may be written, and that AWS_… name it and its credentials"


def checkpoints(environ: Mapping[str, str]) -> list[Finding]:
    """Whether workspaces can be kept where the settings say; nothing where they name no store."""
    lost = "workspaces are on this disk alone, and none can be restored"
    return _found("checkpoints", CHECKPOINTS, environ, what="workspaces", lost=lost, bad=optional)


def files(environ: Mapping[str, str]) -> list[Finding]:
    """The same of the bytes of files and skills, of which none could be served."""
    lost = "no file and no skill can be stored or read"
    return _found("files", FILES, environ, what="files and skills", lost=lost, bad=missing)


def _found(
    subject: str,
    setting: str,
    environ: Mapping[str, str],
    *,
    what: str,
    lost: str,
    bad: Callable[[str, str, str], Finding],
) -> list[Finding]:
    if not (url := environ.get(setting)):
        return []
    try:
        why = _trouble(url, environ)
    except CannotStartError as error:
        return [missing(subject, str(error), f"set {setting} right, or unset it")]
    if why is not None:
        return [bad(subject, f"{url}: {why}; {lost}", _REMEDY)]
    return [fine(subject, f"{what} are kept in {url}")]


def _trouble(url: str, environ: Mapping[str, str]) -> str | None:
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
