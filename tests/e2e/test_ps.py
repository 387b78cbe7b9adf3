"""`drover ps` and `drover doctor --url` over a stack with sessions under way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from cli.main import app
from tests.doubles.messages_api import Gate, text
from tests.e2e.driving import new_session, send

if TYPE_CHECKING:
    from tests.e2e.stack import Stack


def run(stack: Stack, *arguments: str) -> str:
    told = {"DROVER_API_KEY": stack.key, "DROVER_DATA_DIR": str(stack.data), "COLUMNS": "300"}
    ended = CliRunner(env=told).invoke(app, [*arguments, "--url", stack.url])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_session_that_works_is_shown_with_its_brain_and_what_it_waits_for(stack: Stack) -> None:
    gate = Gate()
    stack.model.script(text("late").stall(gate, after="content_block_start"))
    with stack.client() as client:
        rests, works = new_session(client), new_session(client, title="Works")
        send(client, works.id, "Go.")
        gate.wait_reached()
        told: dict[str, Any] = json.loads(run(stack, "ps", "--json"))
        (shown,) = [one for one in told["sessions"] if one["id"] == works.id]
        assert (shown["waits_for"], shown["status"], shown["title"]) == (
            "the model",
            "running",
            "Works",
        )
        assert shown["brain"] in {"brain-1", "brain-2"}
        assert rests.id not in str(told["sessions"])
        lines = [line.split() for line in run(stack, "ps").splitlines()]
        gate.release()
        stack.until_idle(client, works.id)
        assert works.id not in run(stack, "ps")
    serving = {line[0] for line in lines if "SERVING" in line}
    names = {"gateway", "registry", "session", "vault_proxy", "hands", "brain-1", "brain-2"}
    assert serving == names
    assert [works.id] == [line[0] for line in lines if line[:1] == [works.id]]


def test_stack_is_found_as_it_should_be_from_outside(stack: Stack) -> None:
    told = run(stack, "doctor")
    assert "clients can use it" in told
    assert "6 of 6 serve" in told
    assert "come as they are sent" in told
