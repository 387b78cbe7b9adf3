"""Models of the clouds: paths, signatures, bodies and streams, against a double of each."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import pytest
from google.oauth2.credentials import Credentials

from chassis.errors import CannotStartError
from services.brain.model import access
from services.brain.model.access import Provider, open_model
from services.brain.model.port import ModelClient, ModelError, ModelErrorKind
from tests.doubles.platform_api import (
    EVENT_STREAM,
    Answer,
    Cloud,
    chunk,
    cloud,
    exception,
    server_sent,
)
from tests.doubles.scripted_model import response, text, thinking, tool

SECRET = "do-not-tell-0123456789"  # noqa: S105  # a made-up one
MODEL = "us.anthropic.claude-opus-4-6-v1:0"
# Odd spacing and a number that no double holds: what stays of a body stays byte for byte.
MESSAGES = '[{"role":"user",  "content":"h\\u00ef ï"},{"n":123456789012345678901}]'
BODY = f'{{"model":"{MODEL}","max_tokens":10,"stream":true,"messages":{MESSAGES}}}'.encode()
EVENTS = response(
    thinking("Hm."), text("Let me see.", pieces=3), tool("bash", {"command": "ls"}, "toolu_1")
)


@pytest.fixture
async def served() -> AsyncIterator[Cloud]:
    async with cloud() as double:
        yield double


@pytest.fixture
def aws(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_REGION": "eu-test-1",
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": f"session-{SECRET}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "ANTHROPIC_BEDROCK_BASE_URL": served.base_url,
        "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": served.base_url,
        "ANTHROPIC_AWS_BASE_URL": served.base_url,
        "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield from _forget_sessions()


def _forget_sessions() -> Iterator[None]:
    from anthropic.lib.aws._auth import _get_session  # noqa: PLC0415

    _get_session.cache_clear()
    yield
    _get_session.cache_clear()


@pytest.fixture
def google(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_ML_REGION", "europe-test1")
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "my-project")
    monkeypatch.setenv("ANTHROPIC_VERTEX_BASE_URL", f"{served.base_url}/v1")
    monkeypatch.setenv("ANTHROPIC_GOOGLE_CLOUD_BASE_URL", served.base_url)
    monkeypatch.setenv("ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID", "wrkspc_1")
    monkeypatch.setattr("google.auth.default", lambda **_: (_Granted(SECRET), "other-project"))


class _Granted(Credentials):  # type: ignore[misc]  # of a library without types
    """A credential that needs nobody to be fresh."""

    def refresh(self, request: object) -> None:
        del request


async def _collect(client: ModelClient, body: bytes = BODY, *betas: str) -> list[dict[str, Any]]:
    async with client.stream(body, betas=betas) as events:
        return [dict(event) async for event in events]


async def _failure(client: ModelClient) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await _collect(client)
    return caught.value


def _bedrock(*pieces: bytes, cut: bool = False) -> Answer:
    return Answer(pieces, EVENT_STREAM, cut=cut)


def _whole() -> bytes:
    return b"".join(chunk(event) for event in EVENTS)


@pytest.mark.usefixtures("aws")
async def test_bedrock_is_asked_by_path_with_a_signature_over_the_prepared_bytes(
    served: Cloud,
) -> None:
    served.answers.append(_bedrock(_whole()))
    async with open_model({}, Provider.BEDROCK) as client:
        assert await _collect(client, BODY, "one-2026-01-01", "two-2026-02-02") == EVENTS
    (asked,) = served.asked
    assert (asked.method, asked.path) == (
        "POST",
        "/model/us.anthropic.claude-opus-4-6-v1:0/invoke-with-response-stream",
    )
    assert re.match(
        r"AWS4-HMAC-SHA256 Credential=AKIATEST/\d{8}/eu-test-1/bedrock/aws4_request, "
        r"SignedHeaders=[^,]*host[^,]*, Signature=[0-9a-f]{64}$",
        asked.headers["authorization"],
    )
    assert asked.headers["x-amz-security-token"] == f"session-{SECRET}"
    assert asked.raw.endswith(b'"max_tokens":10,"messages":%b}' % MESSAGES.encode())
    assert {name: asked.body[name] for name in asked.body.keys() - {"messages"}} == {
        "anthropic_version": anthropic._constants.ANTHROPIC_API_VERSION,
        "anthropic_beta": ["one-2026-01-01", "two-2026-02-02"],
        "max_tokens": 10,
    }


@pytest.mark.usefixtures("aws")
async def test_bedrock_is_asked_as_the_sdk_itself_asks(served: Cloud) -> None:
    served.answers.extend([_bedrock(_whole()), _bedrock(_whole())])
    body = {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
    asked = json.dumps({"model": MODEL, "stream": True, **body}).encode()
    async with open_model({}, Provider.BEDROCK) as client:
        await _collect(client, asked)
    async with anthropic.AsyncAnthropicBedrock(max_retries=0) as sdk:
        async for _ in await sdk.messages.create(model=MODEL, stream=True, **body):  # type: ignore[call-overload]
            pass
    ours, theirs = served.asked
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    assert ours.headers.keys() == theirs.headers.keys() - {"x-stainless-helper"}


@pytest.mark.usefixtures("aws")
async def test_bedrock_takes_a_bearer_token(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", SECRET)
    served.answers.append(_bedrock(_whole()))
    async with open_model({}, Provider.BEDROCK) as client:
        await _collect(client)
    assert served.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.usefixtures("aws")
async def test_bedrocks_stream_reads_the_same_however_it_is_cut_into_pieces(
    served: Cloud,
) -> None:
    whole = _whole()
    async with open_model({}, Provider.BEDROCK) as client:
        for at in range(1, len(whole), 7):
            served.answers.append(_bedrock(whole[:at], whole[at:]))
            assert await _collect(client) == EVENTS
        served.answers.append(_bedrock(*(whole[at : at + 1] for at in range(len(whole)))))
        assert await _collect(client) == EVENTS


@pytest.mark.usefixtures("aws")
async def test_bedrocks_stream_that_ends_anywhere_is_a_lost_connection(served: Cloud) -> None:
    whole = _whole()
    async with open_model({}, Provider.BEDROCK) as client:
        for at in range(0, len(whole) - len(chunk(EVENTS[-1])), 41):
            served.answers.append(_bedrock(whole[:at], cut=at % 2 == 0))
            failure = await _failure(client)
            assert (failure.kind, failure.retryable) == (ModelErrorKind.CONNECTION, True)


@pytest.mark.usefixtures("aws")
async def test_bedrocks_stream_with_a_flipped_bit_is_no_event(served: Cloud) -> None:
    whole = bytearray(_whole())
    whole[200] ^= 1
    served.answers.append(_bedrock(bytes(whole)))
    async with open_model({}, Provider.BEDROCK) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.REQUEST_FAILED, True)


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("throttlingException", ModelErrorKind.RATE_LIMITED, True),
        ("serviceUnavailableException", ModelErrorKind.OVERLOADED, True),
        ("internalServerException", ModelErrorKind.REQUEST_FAILED, True),
        ("modelStreamErrorException", ModelErrorKind.REQUEST_FAILED, True),
        ("validationException", ModelErrorKind.REQUEST_FAILED, False),
    ],
)
@pytest.mark.usefixtures("aws")
async def test_bedrocks_exceptions_in_a_stream_are_told_apart(
    served: Cloud, kind: str, expected: ModelErrorKind, retryable: bool
) -> None:
    served.answers.append(_bedrock(chunk(EVENTS[0]), exception(kind, "too much")))
    async with open_model({}, Provider.BEDROCK) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (expected, retryable)
    assert "too much" in failure.message


@pytest.mark.usefixtures("aws")
async def test_what_bedrock_quotes_of_the_request_is_struck_out(served: Cloud) -> None:
    quoted = f"the canonical string was\nx-amz-security-token:session-{SECRET}"
    served.answers.append(
        Answer((json.dumps({"message": quoted}).encode(),), "application/json", status=403)
    )
    async with open_model({}, Provider.BEDROCK) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.status) == (ModelErrorKind.AUTHENTICATION, 403)
    assert SECRET not in "".join(traceback.format_exception(failure))
    assert "***" in failure.message


@pytest.mark.usefixtures("aws")
async def test_aws_without_a_credential_is_an_authentication_error_with_advice(
    served: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    async with open_model({}, Provider.BEDROCK) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.AUTHENTICATION, False)
    assert "AWS_REGION" in failure.advice
    assert served.asked == []


@pytest.mark.usefixtures("aws")
async def test_a_region_that_is_missing_is_told_by_the_first_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    async with open_model({}, Provider.BEDROCK) as client:
        failure = await _failure(client)
    assert failure.kind is ModelErrorKind.AUTHENTICATION
    assert "AWS_REGION" in failure.advice


@pytest.mark.usefixtures("google")
async def test_vertex_is_asked_by_path_with_a_token_and_the_prepared_bytes(
    served: Cloud,
) -> None:
    served.answers.append(Answer((server_sent(EVENTS),)))
    async with open_model({}, Provider.VERTEX) as client:
        assert await _collect(client, BODY, "one-2026-01-01") == EVENTS
    (asked,) = served.asked
    assert asked.path == (
        "/v1/projects/my-project/locations/europe-test1/publishers/anthropic/models/"
        "us.anthropic.claude-opus-4-6-v1:0:streamRawPredict"
    )
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.headers["anthropic-beta"] == "one-2026-01-01"
    assert asked.raw.endswith(b'"max_tokens":10,"stream":true,"messages":%b}' % MESSAGES.encode())
    assert asked.body.keys() == {"anthropic_version", "max_tokens", "stream", "messages"}


@pytest.mark.usefixtures("google")
async def test_vertex_is_asked_as_the_sdk_itself_asks(served: Cloud) -> None:
    served.answers.extend([Answer((server_sent(EVENTS),)), Answer((server_sent(EVENTS),))])
    model = "claude-opus-4-5@20251101"
    body = {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
    asked = json.dumps({"model": model, "stream": True, **body}).encode()
    async with open_model({}, Provider.VERTEX) as client:
        await _collect(client, asked)
    async with anthropic.AsyncAnthropicVertex(max_retries=0) as sdk:
        async for _ in await sdk.messages.create(model=model, stream=True, **body):  # type: ignore[call-overload]
            pass
    ours, theirs = served.asked
    assert (ours.path, ours.body) == (theirs.path, theirs.body)


@pytest.mark.usefixtures("google")
async def test_vertex_without_a_project_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_VERTEX_PROJECT_ID")
    async with open_model({}, Provider.VERTEX) as client:
        failure = await _failure(client)
    assert not failure.retryable
    assert "ANTHROPIC_VERTEX_PROJECT_ID" in failure.message


@pytest.mark.usefixtures("google")
async def test_vertexs_errors_are_told_apart_by_status_and_hold_no_token(served: Cloud) -> None:
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": f"quota {SECRET}"}}
    served.answers.append(Answer((json.dumps(error).encode(),), "application/json", status=429))
    async with open_model({}, Provider.VERTEX) as client:
        failure = await _failure(client)
    assert (failure.kind, failure.retryable) == (ModelErrorKind.RATE_LIMITED, True)
    assert "quota ***" in failure.message


@pytest.mark.parametrize(
    ("provider", "authorization"),
    [
        (Provider.BEDROCK_MANTLE, "AWS4-HMAC-SHA256 Credential=AKIATEST"),
        (Provider.AWS, "AWS4-HMAC-SHA256 Credential=AKIATEST"),
        (Provider.GOOGLE_CLOUD, f"Bearer {SECRET}"),
    ],
)
@pytest.mark.usefixtures("aws", "google")
async def test_clouds_that_speak_the_messages_api_are_sent_the_bytes_as_they_are(
    served: Cloud, provider: Provider, authorization: str
) -> None:
    served.answers.append(Answer((server_sent(EVENTS),)))
    async with open_model({}, provider) as client:
        assert await _collect(client, BODY, "one-2026-01-01") == EVENTS
    (asked,) = served.asked
    assert asked.path == "/v1/messages?beta=true"
    assert asked.raw == BODY
    assert asked.headers["anthropic-beta"] == "one-2026-01-01"
    assert asked.headers["authorization"].startswith(authorization)


async def test_foundry_is_sent_its_own_key(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_BASE_URL", served.base_url)
    served.answers.append(Answer((server_sent(EVENTS),)))
    async with open_model({}, Provider.FOUNDRY) as client:
        assert await _collect(client) == EVENTS
    assert served.asked[0].headers["x-api-key"] == SECRET


@pytest.mark.parametrize(
    ("provider", "library", "extra"),
    [
        (Provider.BEDROCK, "boto3", "bedrock"),
        (Provider.AWS, "boto3", "bedrock"),
        (Provider.VERTEX, "google.auth", "vertex"),
    ],
)
async def test_a_missing_extra_keeps_the_brain_from_starting_and_is_named(
    monkeypatch: pytest.MonkeyPatch, provider: Provider, library: str, extra: str
) -> None:
    monkeypatch.setattr(access, "find_spec", lambda name: None if name == library else object())
    with pytest.raises(CannotStartError) as caught:
        async with open_model({}, provider):
            pass
    assert f"pip install 'drover[{extra}]'" in str(caught.value)
    assert library in str(caught.value)
