"""Turns of every shape, each the same whenever it is driven, so that two logs can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby
from typing import Any

from anthropic import Anthropic

from tests.doubles.messages_api import Reply, Request, ToolUse, Usage, error, says, text, tools
from tests.e2e.driving import TOOLSET, history, new_session, send
from tests.e2e.stack import Stack

_IDS = re.compile(r"\b(sevt|sesn|sthr|agent|env|sbx|toolu|msg)_[0-9A-Za-z]+")
_TIMES = frozenset({"processed_at", "created_at", "active_seconds", "duration_seconds"})
_LARGE = Usage(input_tokens=990_000)
_DEADLINE = 60.0


def marked(name: str, more: str = "") -> str:
    """A command that leaves a mark each time it runs."""
    return f"echo {name} >> /workspace/marks; {more}echo {name} ran"


def bash(name: str, more: str = "") -> ToolUse:
    """A call of such a command."""
    return ToolUse("bash", {"command": marked(name, more)})


@dataclass
class Turn:
    """One turn on a session of its own, from the first message to its end."""

    stack: Stack
    client: Anthropic
    arm: Callable[[], None]
    session: str = ""
    sent: list[str] = field(default_factory=list)

    def begin(self, *, tools: Sequence[Any] = (TOOLSET,), say: str = "work") -> None:
        """Makes the session and sends the first message."""
        self.session = new_session(self.client, tools=tools).id
        self.say(say)

    def say(self, words: str) -> None:
        """Sends a message."""
        self.sent += [event.id for event in send(self.client, self.session, words)]

    def post(self, *events: dict[str, Any]) -> None:
        """Sends any other input."""
        sent = self.client.beta.sessions.events.send(self.session, events=events)
        self.sent += [event.id for event in sent.data or []]

    def until(self, reason: str, idles: int = 1) -> list[Any]:
        """Waits until the session has stopped for this reason; answers its log."""
        log: list[Any] = []

        def stopped() -> bool:
            log[:] = history(self.client, self.session)
            ends = [event for event in log if event.type == "session.status_idle"]
            return (
                len(ends) == idles
                and log[-1] is ends[-1]
                and ends[-1].stop_reason.type == reason
                and all(event.processed_at for event in log)
            )

        self.stack.wait_for(stopped, f"{self.session} to stop for {reason}", _DEADLINE)
        return log


@dataclass(frozen=True)
class Shape:
    """A kind of turn: what the model says, what the client does, and the marks that must be left.

    `drive` calls `arm` where kills are to begin.
    """

    name: str
    drive: Callable[[Turn], list[Any]]
    script: Callable[[Stack], None] = lambda _stack: None
    marks: tuple[str, ...] = ()


def _replies(*first: ToolUse) -> Callable[[Request], Reply]:
    """Calls, and a text once their results are there."""

    def answer(request: Request) -> Reply:
        told = request.raw.rfind(b'"tool_result"') > request.raw.rfind(b'"assistant"')
        return text("done", pieces=3) if told or not first else tools(*first)

    return answer


def _simple(turn: Turn) -> list[Any]:
    turn.arm()
    turn.begin()
    return turn.until("end_turn")


def _custom(turn: Turn) -> list[Any]:
    schema = {"type": "object", "properties": {}}
    custom = {"type": "custom", "name": "ask", "description": "Asks.", "input_schema": schema}
    turn.arm()
    turn.begin(tools=(TOOLSET, custom))
    call = next(e for e in turn.until("requires_action") if e.type == "agent.custom_tool_use")
    content = [{"type": "text", "text": "an answer"}]
    turn.post(
        {"type": "user.custom_tool_result", "custom_tool_use_id": call.id, "content": content}
    )
    return turn.until("end_turn", 2)


def _policy(kind: str) -> dict[str, Any]:
    return {
        "type": TOOLSET["type"],
        "configs": [{"name": "bash", "permission_policy": {"type": kind}}],
    }


def _confirmed(turn: Turn) -> list[Any]:
    turn.begin(tools=(_policy("always_ask"),))
    log = turn.until("requires_action")
    allowed, denied = (event.id for event in log if event.type == "agent.tool_use")
    turn.arm()
    turn.post(
        {"type": "user.tool_confirmation", "tool_use_id": allowed, "result": "allow"},
        {"type": "user.tool_confirmation", "tool_use_id": denied, "result": "deny"},
    )
    return turn.until("end_turn", 2)


def _judged(turn: Turn) -> list[Any]:
    turn.arm()
    turn.begin(tools=(_policy("auto"),))
    return turn.until("end_turn")


def _interrupted(turn: Turn) -> list[Any]:
    turn.begin()
    begun = turn.stack.workspace(turn.session) / "begun"
    turn.stack.wait_for(begun.exists, "the command to begin")
    turn.arm()
    turn.post({"type": "user.interrupt"})
    return turn.until("end_turn")


def _queued(turn: Turn) -> list[Any]:
    turn.begin()
    workspace = turn.stack.workspace(turn.session)
    turn.stack.wait_for((workspace / "begun").exists, "the command to begin")
    turn.say("one thing more")
    turn.arm()
    (workspace / "go").touch()
    return turn.until("end_turn")


def _given_up(turn: Turn) -> list[Any]:
    turn.arm()
    turn.begin()
    return turn.until("retries_exhausted")


def _compacted(turn: Turn) -> list[Any]:
    turn.begin(say="a long story")
    turn.until("end_turn")
    turn.arm()
    turn.say("work")
    return turn.until("end_turn", 2)


def _verdict(request: Request) -> bool:
    return b"permission check of an agent harness" in request.raw


def _allowing(stack: Stack) -> None:
    verdict = text(json.dumps({"verdicts": [{"call": 1, "verdict": "allow"}]}))
    stack.model.on(_verdict, *[verdict] * 4)
    stack.model.default(_replies(bash("judged")))


def _waiting(stack: Stack) -> None:
    command = bash("queued", "touch begun; while [ ! -e go ]; do sleep 0.02; done; ")
    stack.model.on(says("one thing more"), *[text("done, too")] * 4)
    stack.model.default(_replies(command))


def _failing_once(stack: Stack) -> None:
    stack.model.script(error(529, retry_after=0.01))
    stack.model.default(_replies())


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plain", _simple, lambda stack: stack.model.default(_replies())),
        Shape("one_tool", _simple, lambda s: s.model.default(_replies(bash("one"))), ("one",)),
        Shape(
            "parallel",
            _simple,
            lambda s: s.model.default(_replies(bash("first"), bash("second"), bash("third"))),
            ("first", "second", "third"),
        ),
        Shape("custom", _custom, lambda s: s.model.default(_replies(ToolUse("ask", {})))),
        Shape(
            "confirmed",
            _confirmed,
            lambda s: s.model.default(_replies(bash("allowed"), bash("denied"))),
            ("allowed",),
        ),
        Shape("judged", _judged, _allowing, ("judged",)),
        Shape(
            "interrupted",
            _interrupted,
            lambda s: s.model.default(_replies(bash("stopped", "touch begun; sleep 600; "))),
            ("stopped",),
        ),
        Shape("queued", _queued, _waiting, ("queued",)),
        Shape("retried", _simple, _failing_once),
        Shape("given_up", _given_up, lambda s: s.model.default(lambda _: error(400))),
        Shape(
            "compacted",
            _compacted,
            lambda s: (
                s.model.on(says("a long story"), text("a long story", usage=_LARGE)),
                s.model.default(_replies()),
            )[1],
        ),
    )
}


def closed_requests(log: Sequence[Any]) -> list[tuple[str, str]]:
    """Ids of the model requests, from start to end, that ended in an error."""
    return [
        (event.model_request_start_id, event.id)
        for event in log
        if event.type == "span.model_request_end" and event.is_error
    ]


def comparable(log: Sequence[Any]) -> list[Any]:
    """A log without what differs from run to run.

    That is times, ids but for what they refer to, and which of several calls was done first.
    """
    calls = {event.id: place for place, event in enumerate(log)}
    ordered: list[Any] = []
    for kind, run in groupby(log, lambda event: event.type):
        of_kind = list(run)
        if kind == "agent.tool_result":
            of_kind.sort(key=lambda event: calls[event.tool_use_id])
        ordered += of_kind
    places = {event.id: f"event {place}" for place, event in enumerate(ordered)}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items() if key not in _TIMES}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, str):
            return places.get(value) or _IDS.sub(lambda found: f"{found[1]}_", value)
        return value

    return [plain(event.model_dump(mode="json")) for event in ordered]


def same_but_for_kills(log: list[Any], uninterrupted: list[Any], kills: int) -> bool:
    """Whether logs are equal once at most so many closed requests are left out of the first."""
    wanted = comparable(uninterrupted)
    closed = closed_requests(log)
    for count in range(min(kills, len(closed)) + 1):
        for chosen in combinations(closed, count):
            left_out = {event_id for pair in chosen for event_id in pair}
            if comparable([event for event in log if event.id not in left_out]) == wanted:
                return True
    return False
