from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from cli.task import Ending, Task
from tests.unit.cli import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAID = wire.event("user.message", content=wire.text("do it"))


class Session:
    """A session that plays a script on each connection and notes what it is sent."""

    def __init__(self, *connections: list[Any]) -> None:
        self._connections = list(connections)
        self.sent: list[dict[str, Any]] = []

    def list(self, _session_id: str, *, limit: int) -> list[Any]:
        del limit
        return []

    @contextmanager
    def stream(self, _session_id: str, **_options: object) -> Iterator[Iterator[Any]]:
        yield self._play(self._connections.pop(0))

    @staticmethod
    def _play(script: list[Any]) -> Iterator[Any]:
        for step in script:
            if isinstance(step, BaseException):
                raise step
            yield step

    def send(self, _session_id: str, *, events: list[dict[str, Any]]) -> None:
        self.sent.extend(events)


def run(session: Session, allow: Callable[[str], bool] | None = None) -> tuple[Ending, list[Any]]:
    client: Any = type("Client", (), {})()
    client.beta = client
    client.sessions = client
    client.events = session
    shown: list[Any] = []
    task = Task(client, "sesn_1", show=shown.append, allow=allow)
    return task.run("do it"), shown


class Unreachable(Session):
    """A session whose user gives up while the connection is being made."""

    def stream(self, _session_id: str, **_options: object) -> NoReturn:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", 0),
        ("retries_exhausted", 4),
        ("budget_reached", 5),
        ("refusal", 6),
        ("newer_than_this", 1),
    ],
)
def test_exit_code_tells_why_the_session_stopped(reason: str, code: int) -> None:
    ending, _ = run(Session([SAID, wire.idle(reason)]))
    assert (ending.reason, ending.exit_code) == (reason, code)


def test_session_that_is_terminated_ends_the_task() -> None:
    ending, _ = run(Session([SAID, wire.event("session.status_terminated")]))
    assert ending.exit_code == 7


def test_idle_from_before_the_message_does_not_end_the_turn() -> None:
    before, after = wire.idle("retries_exhausted"), wire.idle()
    ending, shown = run(Session([before, SAID, after]))
    assert ending.reason == "end_turn"
    assert shown == [before, SAID, after]


def asking() -> list[Any]:
    fields = {"name": "bash", "input": {"command": "id"}, "evaluated_permission": "ask"}
    return [
        SAID,
        wire.event("agent.tool_use", id="call", **fields),
        wire.idle("requires_action", event_ids=["call"]),
    ]


def test_call_that_waits_ends_the_turn_where_nobody_can_be_asked() -> None:
    ending, _ = run(Session(asking()))
    assert ending == Ending("requires_action", ("call",))
    assert ending.exit_code == 3


@pytest.mark.parametrize(("allowed", "result"), [(True, "allow"), (False, "deny")])
def test_answer_of_the_user_is_sent_and_the_turn_goes_on(allowed: bool, result: str) -> None:
    session = Session([*asking(), wire.idle()])
    asked: list[str] = []
    ending, _ = run(session, lambda name: asked.append(name) or allowed)
    assert ending.reason == "end_turn"
    assert asked == ["bash"]
    assert session.sent[-1] == {
        "type": "user.tool_confirmation",
        "tool_use_id": "call",
        "result": result,
    }


@pytest.mark.parametrize("allow", [None, lambda _: True])
def test_a_call_that_a_worker_will_answer_does_not_end_the_turn(
    allow: Callable[[str], bool] | None,
) -> None:
    fields = {"name": "bash", "input": {"command": "id"}, "evaluated_permission": "allow"}
    waiting = wire.idle("requires_action", event_ids=["call"])
    call = wire.event("agent.tool_use", id="call", **fields)
    session = Session([SAID, call, waiting, wire.idle()])
    ending, shown = run(session, allow)
    assert (ending.reason, len(shown)) == ("end_turn", 4)
    assert [event["type"] for event in session.sent] == ["user.message"]


def test_a_call_that_was_allowed_waits_for_a_worker_then() -> None:
    session = Session([*asking(), wire.idle("requires_action", event_ids=["call"]), wire.idle()])
    ending, _ = run(session, lambda _: True)
    assert ending.reason == "end_turn"
    assert [event["type"] for event in session.sent] == ["user.message", "user.tool_confirmation"]


def test_custom_tool_that_nobody_here_can_answer_ends_the_turn() -> None:
    call = wire.event("agent.custom_tool_use", id="custom", name="weather", input={})
    session = Session([SAID, call, wire.idle("requires_action", event_ids=["custom"])])
    ending, _ = run(session, lambda _name: True)
    assert ending.reason == "requires_action"


def test_ctrl_c_interrupts_the_session_and_waits_for_it() -> None:
    session = Session([SAID, KeyboardInterrupt()], [wire.idle()])
    ending, _ = run(session)
    assert (ending.reason, ending.exit_code) == ("interrupted", 130)
    assert session.sent[-1] == {"type": "user.interrupt"}


def test_ctrl_c_hides_no_other_reason_to_stop() -> None:
    ending, _ = run(Session([SAID, KeyboardInterrupt()], [wire.idle("refusal")]))
    assert ending.reason == "refusal"


def test_ctrl_c_before_the_message_has_nothing_to_interrupt() -> None:
    session = Unreachable()
    with pytest.raises(KeyboardInterrupt):
        run(session)
    assert session.sent == []


def test_second_ctrl_c_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Session([SAID, KeyboardInterrupt()], [KeyboardInterrupt()]))
