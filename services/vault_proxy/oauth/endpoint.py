"""One exchange of a refresh token for an access token (RFC 6749 §6, RFC 8707)."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import httpx2
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from chassis.secret import Secret
from services.vault_proxy.captured import Captured, captured
from services.vault_proxy.domain.server_credential import NewTokens
from services.vault_proxy.outbound import SECRET, AnswerTooLargeError, bounded
from services.vault_proxy.proxy.dial import DialError

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.domain.server_credential import Refresh

TOKEN_SECONDS: Final = 20.0
"""That a token endpoint may say nothing."""
ALL_SECONDS: Final = 30.0
"""For an exchange, with all that it takes: who waits for it waits no longer."""
MAX_ANSWER: Final = 64 * 1024
_LONGEST: Final = 10 * 365 * 24 * 3600
_TOKEN: Final = re.compile(r"[!-~]{1,16384}\Z")
_WORD: Final = re.compile(r"[a-z_]{1,64}\Z")
_UNSENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.InvalidURL,
    httpx2.UnsupportedProtocol,
)
_LATER: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Reply:
    """What a token endpoint said: no part of it is a secret that Drover sent."""

    status: int
    error: str
    response: Captured


class ExchangeError(Exception):
    """No new tokens. The message names the endpoint's host and no secret.

    `reached`: the endpoint may have got the refresh token, and spent it.
    """

    def __init__(self, message: str, reply: Reply | None = None, *, reached: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.reply = reply
        self.reached = reached or reply is not None


class ExchangeRefusedError(ExchangeError):
    """The endpoint refuses this refresh token, or this client: asking again is of no use."""


class ExchangeFailedError(ExchangeError):
    """The endpoint was not reached, or is in trouble: later it may work."""


class TokenEndpoints:
    """Asks token endpoints, by the address rules that hold for all that this process asks."""

    def __init__(
        self, client: httpx2.AsyncClient, clock: Clock, *, seconds: float = ALL_SECONDS
    ) -> None:
        self._client = client
        self._clock = clock
        self._seconds = seconds

    async def exchange(self, refresh: Refresh) -> NewTokens:
        """New tokens for a refresh token. Raises `ExchangeError`.

        An endpoint that answers with a redirect is not followed: neither the token nor the
        client's secret is meant for anywhere else.
        """
        host = urlsplit(refresh.token_endpoint).hostname or "the token endpoint"
        form, headers = _request(refresh)
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream(
                    "POST",
                    refresh.token_endpoint,
                    data=form,
                    headers=headers,
                    extensions={SECRET: True},
                ) as response,
            ):
                body = await bounded(response, MAX_ANSWER)
        except DialError as error:
            raise ExchangeFailedError(f"{host}: {error.message}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            msg = f"{host} could not be asked for a token ({type(error).__name__})"
            raise ExchangeFailedError(msg, reached=not isinstance(error, _UNSENT)) from error
        except TimeoutError as error:
            msg = f"{host} took more than {self._seconds:g} seconds for a token"
            raise ExchangeFailedError(msg, reached=True) from error
        except AnswerTooLargeError as error:
            raise ExchangeFailedError(f"{host}: {error}", reached=True) from error
        hidden = [
            refresh.refresh_token,
            *([refresh.client_secret] if refresh.client_secret else []),
        ]
        return self._tokens(refresh, host, response, body, hidden)

    def _tokens(
        self,
        refresh: Refresh,
        host: str,
        response: httpx2.Response,
        body: bytes,
        hidden: list[Secret],
    ) -> NewTokens:
        status = response.status_code
        if not response.is_success:
            error = _error(body)
            reply = Reply(status, error, captured(response, body, hidden))
            if 400 <= status < 500 and status not in _LATER:  # noqa: PLR2004
                msg = f"{host} refuses the refresh token ({error or f'HTTP {status}'})"
                raise ExchangeRefusedError(msg, reply)
            msg = f"{host} gives out no token now (HTTP {status})"
            raise ExchangeFailedError(msg, reply)
        reply = Reply(status, "", captured(response, b"", hidden))
        try:
            answer = json.loads(body)
            token = OAuthToken.model_validate(answer)
        except (ValueError, ValidationError, RecursionError):
            msg = f"{host} answered with no token"
            raise ExchangeFailedError(msg, reply) from None
        if not _is_of_issuer(answer.get("iss"), refresh.token_endpoint):
            msg = f"{host} answered in the name of another issuer"
            raise ExchangeRefusedError(msg, reply)
        given = [token.access_token, *([token.refresh_token] if token.refresh_token else [])]
        if not all(_TOKEN.match(one) for one in given):
            msg = f"{host} answered with a token that no header can hold"
            raise ExchangeFailedError(msg, reply)
        return NewTokens(
            Secret(token.access_token),
            None
            if token.expires_in is None
            else self._clock.now() + timedelta(seconds=min(max(token.expires_in, 0), _LONGEST)),
            Secret(token.refresh_token) if token.refresh_token else None,
        )


def _request(refresh: Refresh) -> tuple[dict[str, str], dict[str, str]]:
    """The form and the headers. `client_id` is in the form whatever the client's method is."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh.refresh_token.open(),
        "client_id": refresh.client_id,
    }
    if refresh.scope:
        form["scope"] = refresh.scope
    if refresh.resource:
        form["resource"] = refresh.resource
    headers = {"accept": "application/json"}
    secret = refresh.client_secret
    if secret is not None and refresh.client_auth == "client_secret_post":
        form["client_secret"] = secret.open()
    if secret is not None and refresh.client_auth == "client_secret_basic":
        pair = f"{quote(refresh.client_id, safe='')}:{quote(secret.open(), safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return form, headers


def _error(body: bytes) -> str:
    """The error code of RFC 6749 §5.2, if the answer has one."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return error if isinstance(error, str) and _WORD.match(error) else ""


def _is_of_issuer(issuer: object, endpoint: str) -> bool:
    """Whether an answer that names its issuer names the one whose endpoint was asked (case V7)."""
    if issuer is None:
        return True
    if not isinstance(issuer, str):
        return False
    try:
        named, asked = urlsplit(issuer), urlsplit(endpoint)
    except ValueError:
        return False
    return (named.scheme, named.hostname) == (asked.scheme, asked.hostname)
