from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from cli.follow import ConnectionLostError, Follower
from tests.unit.cli import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST = httpx2.Request("GET", "http://stack")


class ScriptedEvents:
    """Stands for `client.beta.sessions.events`: each connection plays the next script."""

    def __init__(self, *connections: list[Any] | Exception) -> None:
        self.connections = list(connections)
        self.log: list[Any] = []
        self.calls: list[str] = []

    def list(self, session_id: str, *, limit: int) -> list[Any]:
        assert session_id == "sesn_1"
        assert limit == 1000
        self.calls.append("list")
        return list(self.log)

    @contextmanager
    def stream(self, session_id: str, *, event_deltas: list[str]) -> Iterator[Iterator[Any]]:
        assert session_id == "sesn_1"
        assert event_deltas == ["agent.message", "agent.thinking"]
        self.calls.append("stream")
        script = self.connections.pop(0)
        if isinstance(script, Exception):
            raise script
        yield self._play(script)

    @staticmethod
    def _play(script: list[Any]) -> Iterator[Any]:
        for step in script:
            if isinstance(step, Exception):
                raise step
            yield step


def follower(events: ScriptedEvents, **options: float) -> Follower:
    client: Any = type("Client", (), {})()
    client.beta = client
    client.sessions = client
    client.events = events
    return Follower(client, "sesn_1", **options)


def status_error(code: int) -> anthropic.APIStatusError:
    return anthropic.APIStatusError(
        "no", response=httpx2.Response(code, request=REQUEST), body=None
    )


LAST = wire.event("session.status_terminated")


def test_stream_is_opened_before_history_is_listed_and_before_the_caller_speaks() -> None:
    events = ScriptedEvents([LAST])
    assert list(follower(events).follow(lambda: events.calls.append("opened"))) == [LAST]
    assert events.calls == ["stream", "opened", "list"]


def test_event_in_history_and_on_the_stream_comes_once() -> None:
    first, second = wire.idle(), wire.idle()
    events = ScriptedEvents([first, second, LAST])
    events.log = [first]
    assert list(follower(events).follow()) == [first, second, LAST]


def test_event_that_waits_comes_again_when_it_is_processed_and_only_then() -> None:
    waiting = wire.event("user.message", id="u", processed_at=None, content=wire.text("hi"))
    stamped = wire.event("user.message", id="u", content=wire.text("hi"))
    events = ScriptedEvents([waiting, waiting, stamped, waiting, stamped, LAST])
    assert list(follower(events).follow()) == [waiting, stamped, LAST]


def test_broken_stream_is_resumed_without_gap_or_repetition() -> None:
    first, missed, second = wire.idle(), wire.idle(), wire.idle()
    events = ScriptedEvents([first, httpx2.ReadError("cut")], [second, LAST])
    followed = follower(events).follow(lambda: events.calls.append("opened"))
    assert next(followed) is first
    events.log = [first, missed]
    assert list(followed) == [missed, second, LAST]
    assert events.calls.count("opened") == 1


@pytest.mark.parametrize(
    "failure", [anthropic.APIConnectionError(request=REQUEST), status_error(503)]
)
def test_stack_that_is_being_restarted_is_waited_for(failure: Exception) -> None:
    assert list(follower(ScriptedEvents(failure, [], [LAST])).follow()) == [LAST]


def test_stack_that_stays_away_is_given_up() -> None:
    gone = anthropic.APIConnectionError(request=REQUEST)
    with pytest.raises(ConnectionLostError):
        list(follower(ScriptedEvents(gone, gone), patience=0).follow())


def test_session_that_cannot_be_read_is_not_tried_again() -> None:
    with pytest.raises(anthropic.APIStatusError):
        list(follower(ScriptedEvents(status_error(404))).follow())


def test_previews_pass_as_they_come() -> None:
    script = [wire.start("m"), wire.delta("m", "a"), wire.delta("m", "a"), LAST]
    assert list(follower(ScriptedEvents(script)).follow()) == script
