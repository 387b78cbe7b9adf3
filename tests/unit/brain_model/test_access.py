from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from services.brain.model.access import is_rehearsal, open_model
from tests.doubles.messages_api import running, text

if TYPE_CHECKING:
    from services.brain.model.port import ModelClient

BODY = b'{"model":"m","max_tokens":400,"stream":true,"messages":[{"role":"user","content":"hi"}]}'
VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


async def _said(client: ModelClient) -> str:
    async with client.stream(BODY) as events:
        return "".join([event.get("delta", {}).get("text", "") async for event in events])


@pytest.mark.parametrize(
    ("environ", "rehearses"),
    [
        ({}, True),
        ({"ANTHROPIC_API_KEY": ""}, True),
        ({"ANTHROPIC_MODEL": "m"}, True),
        ({"ANTHROPIC_API_KEY": "k"}, False),
        ({"ANTHROPIC_AUTH_TOKEN": "t"}, False),
        ({"ANTHROPIC_BASE_URL": "http://localhost:1"}, False),
        ({"ANTHROPIC_PROFILE": "work"}, False),
    ],
)
def test_the_rehearsal_model_stands_in_only_when_no_model_is_named(
    environ: dict[str, str], rehearses: bool
) -> None:
    assert is_rehearsal(environ) is rehearses


async def test_without_any_setting_the_rehearsal_model_answers_and_says_what_it_is() -> None:
    async with open_model({}) as client:
        said = await _said(client)
    assert "scripted rehearsal model" in said
    assert "ANTHROPIC_API_KEY" in said


async def test_a_base_url_without_a_key_is_sent_a_placeholder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running() as api:
        api.script(text("from the double"))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.base_url)
        async with open_model({"ANTHROPIC_BASE_URL": api.base_url}) as client:
            assert await _said(client) == "from the double"
        assert api.requests[0].headers["authorization"] == "***"
