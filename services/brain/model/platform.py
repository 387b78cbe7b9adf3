"""Where a model is served from: the SDK's client for the place, and how a request is put to it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    import anthropic
    import httpx2

    from chassis.secret import Secret

MESSAGES = "/v1/messages"

API_VERSION = "2026-10-21"
"""The version of the Messages API that the SDK speaks, where it stands in the body."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A request as its platform takes it: the path, the body, and headers beside the client's."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Frame(Protocol):
    """One event of a stream, off the wire and not yet decoded."""

    @property
    def event(self) -> str | None:
        """The event's name; `error` for one that ends the stream."""
        ...

    @property
    def data(self) -> str:
        """Its JSON."""
        ...


class Platform(Protocol):
    """One place that serves models. Nothing here is imported or built before it is needed."""

    @property
    def provider(self) -> str:
        """Its name in the GenAI conventions."""
        ...

    @property
    def content_type(self) -> str:
        """What the answer to a stream's request begins its content type with."""
        ...

    @property
    def advice(self) -> str:
        """What to check when a credential is missing or refused."""
        ...

    @property
    def libraries(self) -> Mapping[str, str]:
        """The modules that it needs beside the SDK, each with the extra of Drover that has it."""
        ...

    def build(self, timeout: httpx2.Timeout) -> anthropic.AsyncAnthropic:
        """The SDK's client, which reads its own environment. Raises what the SDK raises."""
        ...

    def address(self, client: object, body: bytes, betas: Sequence[str]) -> Letter:
        """Puts `body`, the JSON of `POST /v1/messages`, the way this platform takes it."""
        ...

    def frames(self, response: httpx2.Response) -> AsyncGenerator[Frame]:
        """Takes the answer's stream apart."""
        ...

    def failures(self) -> tuple[type[Exception], ...]:
        """What its own libraries raise when a credential cannot be had."""
        ...


class MessagesApi:
    """A platform that serves the Messages API as it is, at one of the SDK's clients.

    `module` and `client` name its class; it is set up from its own environment variables.
    """

    content_type = "text/event-stream"

    def __init__(
        self,
        module: str,
        client: str,
        *,
        advice: str,
        provider: str = "anthropic",
        libraries: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._client = client
        self.advice = advice
        self.provider = provider
        self.libraries: Mapping[str, str] = libraries or {}

    def build(self, timeout: httpx2.Timeout) -> anthropic.AsyncAnthropic:
        """See `Platform.build`."""
        make = getattr(importlib.import_module(self._module), self._client)
        client: anthropic.AsyncAnthropic = make(
            timeout=timeout,
            max_retries=0,  # the harness retries: it knows what the turn has shown
            open_telemetry=False,  # the harness has its own `chat` span
            **self._arguments(),
        )
        return client

    def _arguments(self) -> dict[str, Any]:
        """What the client is given beside what it reads from the environment."""
        return {}

    def address(self, client: object, body: bytes, betas: Sequence[str]) -> Letter:  # noqa: ARG002
        """See `Platform.address`."""
        if not betas:
            return Letter(MESSAGES, body)
        return Letter(f"{MESSAGES}?beta=true", body, {"anthropic-beta": ",".join(betas)})

    def frames(self, response: httpx2.Response) -> AsyncGenerator[Frame]:
        """See `Platform.frames`: server-sent events."""
        import anthropic  # noqa: PLC0415

        return cast("AsyncGenerator[Frame]", anthropic.AsyncStream.raw_events(response))

    def failures(self) -> tuple[type[Exception], ...]:
        """See `Platform.failures`."""
        return raised_by(self.libraries)


class AnthropicApi(MessagesApi):
    """Anthropic's own API, or any server that speaks it.

    Without arguments the SDK reads its environment: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN,
    ANTHROPIC_BASE_URL and its profiles.
    """

    def __init__(self, *, api_key: Secret | None = None, base_url: str | None = None) -> None:
        super().__init__(
            "anthropic",
            "AsyncAnthropic",
            advice="ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) and ANTHROPIC_BASE_URL",
        )
        self._api_key = api_key
        self._base_url = base_url

    def _arguments(self) -> dict[str, Any]:
        api_key = None if self._api_key is None else self._api_key.open()
        return {"api_key": api_key, "base_url": self._base_url}


def raised_by(libraries: Mapping[str, str]) -> tuple[type[Exception], ...]:
    """The exceptions at the root of what `libraries` raise."""
    roots: list[type[Exception]] = []
    if "boto3" in libraries:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        roots.append(BotoCoreError)
    if "google.auth" in libraries:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        roots.append(GoogleAuthError)
    return tuple(roots)
