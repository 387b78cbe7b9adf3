"""Whether the bytes of files and skills can be kept where the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from cli.doctor.finding import Finding, fine, missing
from cli.doctor.store import trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE = "DROVER_FILES_URL"
_SUBJECT = "files"


def files(environ: Mapping[str, str]) -> list[Finding]:
    """Whether the store can be written and read; nothing where none is named."""
    url = environ.get(STORE)
    if not url:
        return []
    try:
        why = trouble(url, environ)
    except CannotStartError as error:
        return [missing(_SUBJECT, str(error), f"set {STORE} right, or unset it")]
    if why is not None:
        detail = f"{url}: {why}; no file and no skill can be stored or read"
        remedy = "see that it is up, may be written, and that AWS_… name it and its credentials"
        return [missing(_SUBJECT, detail, remedy)]
    return [fine(_SUBJECT, f"files and skills are kept in {url}")]
