"""web_fetch: one page, over as many hops as it takes, each judged by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urljoin

import httpx2

from catalogue.hosts import HostError, Url, parse_url
from services.vault_proxy.domain.audit import Outcome
from services.vault_proxy.outbound import AnswerTooLargeError, Timeouts, bounded
from services.vault_proxy.proxy.dial import AddressDeniedError, DialError
from services.vault_proxy.web.content import MediaType
from services.vault_proxy.web.failures import Code, WebError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.vault_proxy.outbound import Outbound
    from services.vault_proxy.web.judging import WebRules

    Told = Callable[[Url, Outcome, str], Awaitable[None]]

MAX_URL: Final = 2048
MAX_HOPS: Final = 6
"""Requests for one page: five redirects."""

SECONDS: Final = 60.0
_TIMEOUTS: Final = Timeouts(connect=10.0, idle=20.0, pool=20.0)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200
_TOO_MANY: Final = 429
_HEADERS: Final = {
    "accept": "text/html,application/xhtml+xml,text/plain,application/json,application/pdf;q=0.9,"
    "image/*;q=0.8,*/*;q=0.5",
    "accept-language": "en,*;q=0.5",
}
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F))


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the last hop answered."""

    url: str
    kind: MediaType
    body: bytes


class Fetcher:
    """Reads pages. Every hop is a request of its own: no cookie, no credential, no referrer."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    async def fetch(self, text: str, rules: WebRules, told: Told) -> Fetched:
        """The page at the URL `text`. `told` hears of every hop's verdict. Raises `WebError`."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self._follow(text, rules, told)
        except TimeoutError:
            message = f"The page was not there within {SECONDS:.0f} s."
            raise WebError(Code.NOT_ACCESSIBLE, message) from None

    async def _follow(self, text: str, rules: WebRules, told: Told) -> Fetched:
        async with self._outbound.client(timeouts=_TIMEOUTS, headers=_HEADERS) as client:
            for hop in range(MAX_HOPS):
                url = read_url(text, first=hop == 0)
                if refusal := rules.refusal(url.host, url.path):
                    await told(url, Outcome.DENIED, Code.NOT_ALLOWED)
                    raise WebError(Code.NOT_ALLOWED, refusal + ("" if hop == 0 else _LED_THERE))
                answer = await self._request(client, url, told)
                if isinstance(answer, Fetched):
                    return answer
                text = answer
        raise WebError(Code.NOT_ACCESSIBLE, "The page is behind too many redirects.")

    async def _request(self, client: httpx2.AsyncClient, url: Url, told: Told) -> Fetched | str:
        """The answer, or where it says to go instead."""
        where = written(url)
        try:
            async with client.stream("GET", where) as response:
                await told(url, Outcome.ALLOWED, f"status_{response.status_code}")
                return await _answer(response, where)
        except AddressDeniedError as error:
            await told(url, Outcome.DENIED, error.reason)
            raise WebError(Code.NOT_ALLOWED, f"It may not be reached: {error.message}.") from error
        except DialError as error:
            await told(url, Outcome.FAILED, error.reason)
            raise WebError(Code.NOT_ACCESSIBLE, f"{error.message}.") from error
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
            await told(url, Outcome.FAILED, type(error).__name__)
            raise WebError(
                Code.NOT_ACCESSIBLE, f"The server could not be asked ({_what(error)})."
            ) from error


async def _answer(response: httpx2.Response, where: str) -> Fetched | str:
    status = response.status_code
    if status in _REDIRECTS and (location := response.headers.get("location")):
        try:
            return urljoin(where, location)
        except ValueError:
            raise WebError(Code.NOT_ACCESSIBLE, "The server led to no URL.") from None
    if status == _TOO_MANY:
        raise WebError(Code.TOO_MANY, "The server says that it is asked too often. Wait with it.")
    if status != _OK:
        raise WebError(Code.NOT_ACCESSIBLE, f"The server answered with status {status}.")
    kind = MediaType.of(response.headers.get("content-type", ""))
    try:
        return Fetched(where, kind, await bounded(response, kind.limit))
    except AnswerTooLargeError:
        message = f"It has more than {kind.limit:,} bytes."
        raise WebError(Code.TOO_LARGE, message) from None


def read_url(text: str, *, first: bool = True) -> Url:
    """A URL as it is requested: without its fragment, and its name in the form of the DNS.

    Raises `WebError`.
    """
    if len(text) > MAX_URL:
        raise WebError(Code.URL_TOO_LONG, f"A URL may have {MAX_URL} characters at most.")
    try:
        return parse_url(_ascii(text.strip().partition("#")[0]))
    except (HostError, UnicodeError) as error:
        if first:
            raise WebError(Code.INVALID_INPUT, f"The URL {error}.") from None
        raise WebError(Code.NOT_ACCESSIBLE, "The server led to no URL that is read.") from None


def written(url: Url) -> str:
    """The URL in one piece."""
    query = f"?{url.query}" if url.query else ""
    return f"{url.scheme}://{url.host.with_port(url.port, url.scheme)}{url.path}{query}"


def _ascii(text: str) -> str:
    if text.isascii():
        return text.replace(" ", "%20")
    scheme, slashes, rest = text.partition("://")
    end = next((place for place, one in enumerate(rest) if one in "/?#"), len(rest))
    host = rest[:end]
    if not host.isascii():
        host = _named(host)
    return f"{scheme}{slashes}{host}{quote(rest[end:], safe=_SAFE)}"


def _named(host: str) -> str:
    # Only who writes a name in its own script needs the tables.
    import idna  # noqa: PLC0415

    name, colon, port = host.partition(":")
    return idna.encode(name, uts46=True).decode("ascii") + colon + port


def _what(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "it took too long"
    if isinstance(error, httpx2.ConnectError):
        return str(error)[:200] or "no secure connection came about"
    return "it broke off, or spoke no HTTP"


_LED_THERE: Final = " The server of the URL led there."
