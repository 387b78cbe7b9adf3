from __future__ import annotations

import base64

import httpx2
import pytest

from chassis.secret import Secret
from services.vault_proxy.captured import MAX_SHOWN, captured

SECRET = Secret("s3cr3t/token+value")


def _shown(body: bytes) -> str:
    response = httpx2.Response(400, headers={"content-type": "text/plain"})
    return captured(response, body, [SECRET]).body


@pytest.mark.parametrize(
    "body",
    [
        b"you sent s3cr3t/token+value",
        b'{"sent": "s3cr3t\\/token+value"}',
        b"s3cr3t%2Ftoken%2Bvalue",
        base64.b64encode(b"x:s3cr3t/token+value"),
        b"x" * (MAX_SHOWN - 4) + b"s3cr3t/token+value",
    ],
)
def test_a_secret_is_shown_in_no_form(body: bytes) -> None:
    shown = _shown(body)
    assert not any(part in shown for part in ("s3cr", "token", "value"))
    assert "*" in shown


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"access_token": "abc", "x": 1}', '{"access_token": "***", "x": 1}'),
        (b"Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        (b"client_secret=abc&a=b", "client_secret=***&a=b"),
        (b"<p>nothing</p>", "<p>nothing</p>"),
    ],
)
def test_what_looks_like_a_secret_is_struck_out(body: bytes, shown: str) -> None:
    assert _shown(body) == shown


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert _shown(b"\xff\xfe") == "\ufffd\ufffd"
