"""Sessions of self-hosted environments, served by the official worker through the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import TOOLSET, history, run_turn, send, texts
from tests.e2e.stack import Stack
from tests.e2e.workers import Desk, desk
from tests.replay.scenarios import DESK


@pytest.fixture
def bench(stack: Stack, tmp_path: Path) -> Iterator[Desk]:
    with desk(stack, tmp_path) as opened:
        yield opened


def bash(command: str) -> ToolUse:
    return ToolUse("bash", {"command": command})


def results(log: list[Any]) -> list[str]:
    return texts(log, "user.tool_result")


def states(bench: Desk) -> list[str]:
    return [item["state"] for item in bench.work()]


def test_the_stock_worker_serves_a_turn_with_tools(bench: Desk) -> None:
    bench.stack.model.script(
        tools(
            bash("echo kept > note; pwd"),
            ToolUse("write", {"file_path": "other", "content": "second"}),
        ),
        tools(ToolUse("read", {"file_path": "note"}), ToolUse("glob", {"pattern": "*"})),
        text("done"),
    )
    session = bench.session()
    bench.worker()
    send(bench.client, session.id, "work")
    log = bench.stack.until_idle(bench.client, session.id)
    pwd, _, read, found = results(log)
    assert pwd.strip() == str(bench.folder / "work")
    assert "kept" in read
    assert "other" in found
    assert (bench.folder / "work" / "other").read_text() == "second"
    assert [event for event in log if event.type == "agent.tool_result"] == []
    assert session.id not in bench.stack.sandboxes()


def test_whatever_file_the_stock_worker_reads_the_session_goes_on(bench: Desk) -> None:
    place = bench.folder / "work"
    for name in ("empty.png", "empty.pdf", "empty"):
        (place / name).touch()
    (place / "torn.png").write_bytes(b"torn")
    (place / "bytes").write_bytes(bytes(range(256)))
    names = ["empty.png", "empty.pdf", "empty", "torn.png", "bytes", ".", "missing"]
    bench.stack.model.script(
        tools(*(ToolUse("read", {"file_path": name}) for name in names)), text("done")
    )
    session = bench.session()
    bench.worker()
    send(bench.client, session.id, "work")
    log = bench.stack.until_idle(bench.client, session.id)
    failed = [event.is_error for event in log if event.type == "user.tool_result"]
    assert failed == [False] * 4 + [True] * 3


def test_a_message_after_the_worker_has_left_queues_a_new_item(bench: Desk) -> None:
    bench.stack.model.script(tools(bash("echo one")), text("first"), tools(bash("echo two")))
    session = bench.session()
    bench.worker()
    send(bench.client, session.id, "work")
    bench.stack.until_idle(bench.client, session.id)
    bench.stack.wait_for(lambda: states(bench) == ["stopped"], "the worker to leave")
    bench.stack.model.script(text("second"))
    send(bench.client, session.id, "more")
    log = bench.stack.until_idle(bench.client, session.id, answers=2)
    assert [one.strip() for one in results(log)] == ["one", "two"]
    assert len(bench.work()) == 2


def test_asked_denied_and_custom_calls_are_each_answered_by_whom_they_are_for(bench: Desk) -> None:
    asking: Any = {"name": "bash", "permission_policy": {"type": "always_ask"}}
    bench.stack.model.script(
        tools(
            bash("echo allowed > allowed"),
            bash("echo denied > denied"),
            ToolUse("ask_desk", {"q": "open?"}),
            ToolUse("glob", {"pattern": "*"}),
        ),
        text("done"),
    )
    session = bench.session({**TOOLSET, "configs": [asking]}, DESK)
    bench.worker()
    with bench.client.beta.sessions.events.stream(session.id) as stream:
        send(bench.client, session.id, "work")
        calls = [next(e for e in stream if e.type.endswith("tool_use")).id for _ in range(3)]
        # The one that nobody has to allow is answered while the others wait.
        next(event for event in stream if event.type == "user.tool_result")
        assert not (bench.folder / "work" / "allowed").exists()
        allowed, denied, custom = calls
        answers: list[Any] = [
            {"type": "user.tool_confirmation", "tool_use_id": allowed, "result": "allow"},
            {"type": "user.tool_confirmation", "tool_use_id": denied, "result": "deny"},
            {
                "type": "user.custom_tool_result",
                "custom_tool_use_id": custom,
                "content": [{"type": "text", "text": "yes"}],
            },
        ]
        bench.client.beta.sessions.events.send(session.id, events=answers)
    log = bench.stack.until_idle(bench.client, session.id)
    assert {e.tool_use_id for e in log if e.type == "agent.tool_result"} == {denied}
    assert len(results(log)) == 2
    assert (bench.folder / "work" / "allowed").exists()
    assert not (bench.folder / "work" / "denied").exists()


def test_an_interrupt_of_a_session_that_is_stuck_queues_its_work_again(bench: Desk) -> None:
    """And the worker that comes then does not run what was interrupted."""
    bench.stack.model.script(tools(bash("echo ran > ran")), text("better"))
    session = bench.session()
    run_turn(bench.client, session.id, "work")
    (item,) = bench.work()
    path = {"environment_id": bench.environment_id}
    bench.client.beta.environments.work.stop(item["id"], **path, force=True)
    # While a call is open it goes back to the queue, and waits for who comes.
    assert states(bench) == ["queued"]
    bench.client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])

    def over() -> bool:
        # It is idle until then as well, and waits for the worker.
        last = history(bench.client, session.id)[-1]
        return bool(last.type == "session.status_idle" and last.stop_reason.type == "end_turn")

    bench.stack.wait_for(over, "the end of the turn")
    bench.client.beta.environments.work.stop(item["id"], **path, force=True)
    assert states(bench) == ["stopped"]
    bench.client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    assert states(bench) == ["queued", "stopped"]
    bench.worker()
    send(bench.client, session.id, "something else")
    bench.stack.until_idle(bench.client, session.id)
    bench.stack.wait_for(lambda: "queued" not in states(bench), "the worker to come")
    bench.stack.wait_for(lambda: states(bench)[0] == "stopped", "the worker to leave")
    assert not (bench.folder / "work" / "ran").exists()


def test_a_claimed_item_is_served_by_a_fresh_process_with_its_secret_alone(bench: Desk) -> None:
    bench.stack.model.script(tools(bash("echo here")), text("done"))
    session = bench.session()
    send(bench.client, session.id, "work")
    bench.stack.wait_for(lambda: states(bench) == ["queued"], "work")
    (item,) = bench.claimed()
    assert item.data.id == session.id
    process = bench.handed(item)
    log = bench.stack.until_idle(bench.client, session.id)
    assert [one.strip() for one in results(log)] == ["here"]
    process.kill()
    assert history(bench.client, session.id)[-1].stop_reason.type == "end_turn"
