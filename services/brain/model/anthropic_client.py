"""The model through the official SDK: its authentication, HTTP client and errors, our own bytes.

The SDK's typed calls build a pydantic object for every block of the history and of the answer,
which costs 1.4 ms of CPU on a short request and 6 ms at 600 messages. Here the request goes through
`AsyncAnthropic.post`, the SDK's documented way to call an endpoint by path: `content` sends bytes
as they are, and `cast_to=Response` hands back the raw answer once its status was checked. The
stream is taken apart by `AsyncStream.raw_events`. Together 0.8 to 0.9 ms, whatever the
history; the HTTP client alone takes 0.55.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from email.utils import mktime_tz, parsedate_tz
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

import orjson

from services.brain.model.failures import broken_off, refused
from services.brain.model.platform import AnthropicApi
from services.brain.model.port import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    import anthropic
    import httpx2

    from services.brain.model.platform import Frame, Letter, Platform

_CONNECT_TIMEOUT = 5.0
_DRAIN_TIMEOUT = 0.25

# Headers of a request that hold a credential.
_SECRETS = ("authorization", "x-api-key", "api-key", "x-amz-security-token")


class AnthropicModelClient:
    """`ModelClient` over one of the SDK's clients, which is imported when it is first needed.

    `platform` says where the model is served from, Anthropic's own API if none is given. `silence`
    is how many seconds may pass without a byte from the model before the connection counts as lost
    (the API sends pings while it thinks).
    """

    def __init__(self, platform: Platform | None = None, *, silence: float = 600.0) -> None:
        self._platform = platform or AnthropicApi()
        self._silence = silence
        self._building = asyncio.Lock()
        self._client: anthropic.AsyncAnthropic | None = None

    @property
    def provider(self) -> str:
        """See `ModelClient.provider`."""
        return self._platform.provider

    async def prepare(self) -> None:
        """Import and build the SDK's client now, off the event loop: about a second of work.

        `stream` does it otherwise. Raises ModelError (AUTHENTICATION) if the SDK finds its
        configuration unusable.
        """
        await self._connected()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @asynccontextmanager
    async def stream(
        self, body: bytes, *, betas: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        """See `ModelClient.stream`."""
        client = await self._connected()
        response = await _post(client, self._platform, body, betas)
        events = _RawEvents(response, self._platform)
        try:
            yield events
            await events.drain()
        finally:
            await events.close()
            await response.aclose()

    async def _connected(self) -> anthropic.AsyncAnthropic:
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build)
            return self._client

    def _build(self) -> anthropic.AsyncAnthropic:
        import httpx2  # noqa: PLC0415  # a second of import with the SDK, wanted by few processes

        for library in self._platform.libraries:
            import_module(library)  # now, and not in the first request
        timeout = httpx2.Timeout(self._silence, connect=_CONNECT_TIMEOUT)
        try:
            return self._platform.build(timeout)
        except _misconfigured(self._platform) as error:
            failure = _unusable(error, self._platform)
        raise failure


async def _post(
    client: anthropic.AsyncAnthropic, platform: Platform, body: bytes, betas: Sequence[str]
) -> httpx2.Response:
    """Send `body`; the answer, its status checked and its stream unread.

    Failures are raised outside the `except` blocks: a chained exception may hold a credential
    (`Illegal header value b'…'`) and would be logged with its successor.
    """
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    sent: httpx2.Request | None = None
    letter = _addressed(client, platform, body, betas)
    try:
        response = await client.post(
            letter.path,
            cast_to=cast("Any", httpx2.Response),
            content=letter.body,
            options={"headers": dict(letter.headers)},
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        )
    except anthropic.APIStatusError as error:
        sent = error.request
        failure = refused(
            error.status_code,
            error.body,
            error.response.headers,
            now=time.time,
            parse_date=_http_date,
        )
        if failure.kind is ModelErrorKind.AUTHENTICATION:
            failure.advice = platform.advice
    except anthropic.APIConnectionError as error:
        failure = _unreachable(error)
    except _misconfigured(platform) as error:
        failure = _unusable(error, platform)
    else:
        raw = cast("httpx2.Response", response)
        content_type = raw.headers.get("content-type", "")
        if content_type.startswith(platform.content_type):
            return raw
        await raw.aclose()
        failure = ModelError(
            ModelErrorKind.REQUEST_FAILED,
            f"the model's API answered with {content_type or 'no content type'}, not a stream",
            status=raw.status_code,
            retryable=False,
        )
    raise failure if sent is None else _redacted(failure, sent)


def _addressed(
    client: anthropic.AsyncAnthropic, platform: Platform, body: bytes, betas: Sequence[str]
) -> Letter:
    try:
        return platform.address(client, body, betas)
    except ValueError as error:
        failure = ModelError(
            ModelErrorKind.REQUEST_FAILED,
            f"the request cannot be put to the model's platform: {error}",
            retryable=False,
        )
    raise failure


class _RawEvents:
    """The events of one answer, until `message_stop`."""

    def __init__(self, response: httpx2.Response, platform: Platform) -> None:
        import httpx2  # noqa: PLC0415

        self._sent = response.request
        self._lost = (httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError)
        self._frames: AsyncGenerator[Frame] = platform.frames(response)
        self._stopped = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Mapping[str, Any]:
        if self._stopped:
            raise StopAsyncIteration
        try:
            async for frame in self._frames:
                if frame.event == "error":
                    failure = broken_off(_decoded(frame.data))
                    break
                if frame.event == "ping" or not frame.data:
                    continue
                event: Mapping[str, Any] = orjson.loads(frame.data)
                self._stopped = event["type"] == "message_stop"
                return event
            else:
                failure = _cut("the model's stream ended before the message did")
        except self._lost as error:
            failure = _cut(f"the connection to the model was lost ({type(error).__name__})")
        except (ValueError, KeyError, TypeError):
            failure = ModelError(
                ModelErrorKind.REQUEST_FAILED,
                "the model's stream holds an event that is not JSON or has no type",
                retryable=True,
            )
        self._stopped = True
        raise _redacted(failure, self._sent)

    async def drain(self) -> None:
        """After `message_stop`, read the end of the body, so that the connection can be reused.

        A server that keeps the body open is waited for only briefly.
        """
        if self._stopped:
            try:
                async with asyncio.timeout(_DRAIN_TIMEOUT):
                    async for _ in self._frames:
                        pass
            except (TimeoutError, *self._lost):
                pass

    async def close(self) -> None:
        """Stop taking the body apart."""
        await self._frames.aclose()


def _cut(message: str) -> ModelError:
    return ModelError(ModelErrorKind.CONNECTION, message, retryable=True)


def _unreachable(error: anthropic.APIConnectionError) -> ModelError:
    """A request without an answer. Only class names are told: texts may hold header values."""
    import httpx2  # noqa: PLC0415

    cause = type(error.__cause__ or error)
    if issubclass(cause, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return ModelError(
            ModelErrorKind.REQUEST_FAILED,
            f"the request to the model could not be written ({cause.__name__}): "
            "check the base URL and the key for stray characters",
            retryable=False,
        )
    return _cut(f"the model's API could not be reached ({cause.__name__})")


def _misconfigured(platform: Platform) -> tuple[type[Exception], ...]:
    """What says that settings or credentials are missing: the SDK uses all of these for it."""
    import anthropic  # noqa: PLC0415

    own = (anthropic.AnthropicError, TypeError, ValueError, RuntimeError)
    return (*own, *platform.failures())


def _unusable(error: Exception, platform: Platform) -> ModelError:
    """No credential, or not enough settings. `retryable` is google-auth's word for a bad moment."""
    return ModelError(
        ModelErrorKind.AUTHENTICATION,
        f"no usable credential for the model's API ({type(error).__name__})",
        retryable=getattr(error, "retryable", False) is True,
        advice=platform.advice,
    )


def _redacted(failure: ModelError, sent: httpx2.Request) -> ModelError:
    """`failure` with the request's own secrets struck out: some servers quote what they got."""
    for name in _SECRETS:
        secret = sent.headers.get(name, "").removeprefix("Bearer ")
        if secret and secret in failure.message:
            failure.message = failure.message.replace(secret, "***")
            failure.args = (failure.message,)
    return failure


def _decoded(data: str) -> object:
    try:
        body: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    return body


def _http_date(text: str) -> float | None:
    parsed = parsedate_tz(text)
    return None if parsed is None else float(mktime_tz(parsed))
