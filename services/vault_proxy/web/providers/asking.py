"""How providers are asked: JSON over HTTP, once, with a bound on time and size."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import httpx2
import structlog

from services.vault_proxy.outbound import AnswerTooLargeError, Timeouts, bounded
from services.vault_proxy.proxy.dial import DialError
from services.vault_proxy.web.failures import Code, WebError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.vault_proxy.outbound import Outbound

SECONDS: Final = 20.0
_TIMEOUTS: Final = Timeouts(connect=5.0, idle=15.0, pool=10.0)
_LARGEST: Final = 4 << 20
_OK: Final = 200
_TOO_MANY: Final = 429
_TOO_LONG: Final = frozenset({413, 414})

_log = structlog.get_logger("vault_proxy.search")


async def ask(
    outbound: Outbound, url: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, Any]:
    """The provider's answer, a JSON object. Raises `WebError`, whose text tells nothing of it."""
    try:
        async with asyncio.timeout(SECONDS), outbound.client(timeouts=_TIMEOUTS) as client:
            accept = {"accept": "application/json", **headers}
            async with client.stream("GET", url, params=query, headers=accept) as response:
                _check(response.status_code)
                answer = json.loads(await bounded(response, _LARGEST))
    except (TimeoutError, httpx2.HTTPError, DialError, AnswerTooLargeError) as error:
        _log.warning("search_failed", why=type(error).__name__)
        raise WebError(Code.UNAVAILABLE, "The search provider could not be asked.") from error
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        _log.warning("search_failed", why="no JSON object")
        raise WebError(Code.UNAVAILABLE, "The search provider gave no answer that can be read.")
    return answer


def _check(status: int) -> None:
    if status == _OK:
        return
    _log.warning("search_refused", status=status)
    if status == _TOO_MANY:
        raise WebError(Code.TOO_MANY, "The search provider is asked too often. Wait with it.")
    if status in _TOO_LONG:
        raise WebError(Code.QUERY_TOO_LONG, "The search provider does not take so long a query.")
    message = f"The search provider refused (status {status}); its operator can look into it."
    raise WebError(Code.UNAVAILABLE, message)


def text(value: object) -> str:
    """A string of an answer; empty for anything else."""
    return value if isinstance(value, str) else ""


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list of an answer."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
