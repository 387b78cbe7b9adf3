"""Answers of strangers, cut to a length and without secrets, to be shown to people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.vault_proxy.domain.redaction import redaction

if TYPE_CHECKING:
    import httpx2

    from chassis.secret import Secret

MAX_SHOWN: Final = 2_000
"""Characters of a body that are kept."""

_HIDDEN: Final = "***"
_LOOKS_SECRET: Final = re.compile(
    r"""(?ix)
    (?P<keep>\b(?:bearer|basic)\s+
      | ["']?(?:[a-z_-]{0,32}(?:token|secret|password|authorization|api_?key|assertion))["']?
        \s*[=:]\s*["']?(?:(?:bearer|basic)\s+)?)
    [^\s"',;&<>]+
    """
)


@dataclass(frozen=True, slots=True)
class Captured:
    """An HTTP answer, fit to be shown."""

    status: int
    content_type: str
    body: str
    truncated: bool


def captured(response: httpx2.Response, body: bytes, hidden: Iterable[Secret]) -> Captured:
    """An answer whose body was read, without `hidden` and without what looks like a secret."""
    struck = redaction(secret.open() for secret in hidden).replaced(body)
    text = struck.decode("utf-8", "replace")
    return Captured(
        response.status_code,
        response.headers.get("content-type", "")[:255],
        _LOOKS_SECRET.sub(lambda match: match["keep"] + _HIDDEN, text[:MAX_SHOWN]),
        len(text) > MAX_SHOWN,
    )
