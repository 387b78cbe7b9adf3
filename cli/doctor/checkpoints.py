"""Whether workspaces can be kept where the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from cli.doctor.finding import Finding, fine, missing, optional
from cli.doctor.store import trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE = "DROVER_HANDS_CHECKPOINTS"
_SUBJECT = "checkpoints"


def checkpoints(environ: Mapping[str, str]) -> list[Finding]:
    """Whether the store can be written and read; nothing where none is named."""
    url = environ.get(STORE)
    if not url:
        return []
    try:
        why = trouble(url, environ)
    except CannotStartError as error:
        return [missing(_SUBJECT, str(error), f"set {STORE} right, or unset it")]
    if why is not None:
        detail = f"{url}: {why}; workspaces are on this disk alone, and none can be restored"
        remedy = "see that it is up, may be written, and that AWS_… name it and its credentials"
        return [optional(_SUBJECT, detail, remedy)]
    return [fine(_SUBJECT, f"workspaces are kept in {url}")]
