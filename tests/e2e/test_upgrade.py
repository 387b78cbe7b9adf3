"""What an earlier release has left behind, taken over by this one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tests.e2e.driving import history, run_turn
from tests.e2e.forked_stack import ForkedStack

_RELEASED = Path(__file__).parent.parent / "contract" / "storage" / "released_0_1"


def test_sessions_of_the_first_release_are_all_there_and_go_on(tmp_path: Path) -> None:
    for dump in _RELEASED.glob("*.sql"):
        file = sqlite3.connect(tmp_path / f"{dump.stem}.db")
        file.executescript(dump.read_text())
        file.close()
    variables = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    with ForkedStack(tmp_path, brains=1, environment=variables) as stack:
        client = stack.target.client()
        [session] = client.beta.sessions.list()
        before = history(client, session.id)
        assert before[0].type == "user.message"
        assert [event.type for event in before].count("agent.tool_result") == 1
        assert before[-1].type == "session.status_idle"
        run_turn(client, session.id, "Run true")
        after = history(client, session.id)
        assert [event.id for event in after[: len(before)]] == [event.id for event in before]
        assert after[-1].type == "session.status_idle"
        [environment] = client.beta.environments.list()
        assert environment.id == session.environment_id
