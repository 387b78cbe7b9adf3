"""Claude on Amazon Bedrock: the model in the path, and the answer in Amazon's event stream.

The SDK's `AsyncAnthropicBedrock` signs (SigV4, with what boto3 finds) or sends the bearer token,
whatever the path is. Its own rewriting of `/v1/messages` needs the request as a dictionary, so the
path is given as it would make it, and the prepared bytes stay as they are.
"""

from __future__ import annotations

import base64
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import orjson

from services.brain.model.envelope import model_of, open_envelope, seal
from services.brain.model.platform import API_VERSION, Letter, raised_by

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    import anthropic
    import httpx2

    from services.brain.model.platform import Frame

AWS_BEDROCK: Final = "aws.bedrock"
BOTO3: Final = {"boto3": "bedrock"}

# Exceptions of `InvokeModelWithResponseStream`, in the words of the Messages API.
_ERRORS: Final = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "internalServerException": "api_error",
    "modelStreamErrorException": "api_error",
    "modelTimeoutException": "timeout_error",
    "validationException": "invalid_request_error",
}


@dataclass(frozen=True, slots=True)
class _Event:
    event: str | None
    data: str


class Bedrock:
    """`Platform` over `InvokeModelWithResponseStream`.

    The environment is the SDK's and boto3's own: AWS_REGION, AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY, AWS_PROFILE, the machine's role, or AWS_BEARER_TOKEN_BEDROCK;
    ANTHROPIC_BEDROCK_BASE_URL.
    """

    provider = AWS_BEDROCK
    content_type = "application/vnd.amazon.eventstream"
    advice = (
        "AWS_REGION, the AWS credentials (or AWS_BEARER_TOKEN_BEDROCK), "
        "and the account's access to the model"
    )
    libraries = BOTO3

    def build(self, timeout: httpx2.Timeout) -> anthropic.AsyncAnthropic:
        """See `Platform.build`."""
        from anthropic import AsyncAnthropicBedrock  # noqa: PLC0415

        client: Any = AsyncAnthropicBedrock(timeout=timeout, max_retries=0, open_telemetry=False)
        return client  # type: ignore[no-any-return]  # as much of it as is used here

    def address(self, client: object, body: bytes, betas: Sequence[str]) -> Letter:  # noqa: ARG002
        """See `Platform.address`."""
        envelope = open_envelope(body, ("model", "stream"))
        model = quote(model_of(envelope), safe=":")
        added: dict[str, str | list[str]] = {"anthropic_version": API_VERSION}
        if betas:
            added["anthropic_beta"] = list(betas)
        return Letter(
            f"/model/{model}/invoke-with-response-stream", seal(envelope.members, **added)
        )

    async def frames(self, response: httpx2.Response) -> AsyncGenerator[Frame]:
        """See `Platform.frames`. A frame whose checksum is wrong is a ValueError."""
        from botocore.eventstream import EventStreamBuffer, ParserError  # noqa: PLC0415

        buffer: Any = EventStreamBuffer()
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                buffer.add_data(chunk)
                try:
                    events = [_event(message) for message in buffer]
                except ParserError as error:
                    msg = "the stream's framing is broken"
                    raise ValueError(msg) from error
                for event in events:
                    if event is not None:
                        yield event

    def failures(self) -> tuple[type[Exception], ...]:
        """See `Platform.failures`."""
        return raised_by(self.libraries)


class _Message(Protocol):
    """A message of the event stream, as botocore decodes it."""

    headers: Mapping[str, object]
    payload: bytes


def _event(message: _Message) -> _Event | None:
    headers = message.headers
    if headers.get(":message-type") == "event":
        if headers.get(":event-type") != "chunk":
            return None
        data = base64.b64decode(orjson.loads(message.payload)["bytes"])
        decoded = orjson.loads(data)
        kind = decoded.get("type") if isinstance(decoded, dict) else ""
        return _Event(str(kind or ""), data.decode())
    failed = str(headers.get(":exception-type") or headers.get(":error-code") or "")
    error = {"type": _ERRORS.get(failed, failed), "message": _message(message)}
    return _Event("error", orjson.dumps({"type": "error", "error": error}).decode())


def _message(message: _Message) -> str:
    try:
        body = orjson.loads(message.payload)
    except orjson.JSONDecodeError:
        body = {}
    said = body.get("message") if isinstance(body, dict) else None
    return str(said or message.headers.get(":error-message") or "")
