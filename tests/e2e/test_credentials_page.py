"""The walk-through of docs/credentials.md, as a new user follows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history
from tests.e2e.stack import ROOT

if TYPE_CHECKING:
    import pytest

    from tests.e2e.stack import Stack

PAGE = (ROOT / "docs" / "credentials.md").read_text()
WALK_THROUGH = PAGE[PAGE.index("## A walk-through") : PAGE.index("## Vaults")]
BLOCKS = re.findall(r"```python\n(.*?)```", WALK_THROUGH, re.DOTALL)


def test_every_step_does_what_the_page_says(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", stack.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", stack.key)
    asks = 'curl -s -o /dev/null -H "Authorization: Bearer $WEATHER_KEY" https://api.weather.example/v1/today'
    command = f'echo "<$WEATHER_KEY>"; {asks}; curl -s https://other.example/'
    stack.model.script(tools(ToolUse("bash", {"command": command})), text("sunny"))
    names: dict[str, Any] = {}
    *steps, archive = BLOCKS
    for block in steps:
        exec(block, names)  # noqa: S102  # the page's own
    client, session = names["client"], names["session"]
    with client, client.beta.sessions.events.stream(session.id) as stream:
        if client.beta.sessions.retrieve(session.id).status != "idle":
            for event in stream:
                if event.type == "session.status_idle":
                    break
        (result,) = [
            event for event in history(client, session.id) if event.type == "agent.tool_result"
        ]
        shown = str(result.content)
        placeholder = re.search(r"<(\S+)>", shown)
        assert placeholder is not None, shown
        assert "s3cr3t" not in shown
        entries = client.get(
            f"/v1/vault_audit?session_id={session.id}",
            cast_to=object,
            options={"headers": {"anthropic-beta": "managed-agents-2026-04-01"}},
        )["data"]
        hosts = {entry["host"]: entry["verdict"] for entry in entries if entry["kind"] == "egress"}
        assert hosts["other.example"] == "denied"
        assert "api.weather.example" in hosts
        exec(archive, names)  # noqa: S102
        assert list(client.beta.vaults.credentials.list(names["vault"].id)) == []
