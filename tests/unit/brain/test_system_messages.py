"""System messages along the way, where the Messages API takes them (EVENTS §1)."""

from __future__ import annotations

import json
from typing import Any

from drover.event.v1.agent_event_pb2 import AgentCustomToolUse, AgentMessage
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import EndTurn, SessionStatusIdle, StopReason
from drover.event.v1.span_event_pb2 import SpanModelRequestEnd, SpanModelRequestStart
from drover.event.v1.user_event_pb2 import (
    SystemContent,
    SystemMessage,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
)
from services.brain.domain import content, judge
from services.brain.domain.events import text
from services.brain.domain.state import State
from tests.unit.brain.logs import HARNESS, session


class Log:
    """A session's log, folded as it grows."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.state = HARNESS.begin(session())

    def add(self, *events: Event) -> Log:
        for event in events:
            event.id = event.id or f"sevt_{len(self.events)}"
            event.seq = len(self.events) + 1
            self.events.append(event)
            HARNESS.project(self.state, event, 0.0)
        return self

    def user(self, said: str) -> Log:
        return self.add(Event(user_message=UserMessage(content=[text(said)])))

    def system(self, *said: str) -> Log:
        content = [SystemContent(text=part) for part in said]
        return self.add(Event(system_message=SystemMessage(content=content)))

    def start(self, request: str = "request") -> Log:
        return self.add(Event(id=request, span_model_request_start=SpanModelRequestStart()))

    def end(self, request: str = "request", **fields: Any) -> Log:
        end = SpanModelRequestEnd(model_request_start_id=request, **fields)
        return self.add(Event(span_model_request_end=end))

    def reply(self, said: str) -> Log:
        self.start()
        self.add(Event(agent_message=AgentMessage(content=[text(said)])))
        return self.end()

    def idle(self) -> Log:
        reason = StopReason(end_turn=EndTurn())
        return self.add(Event(session_status_idle=SessionStatusIdle(stop_reason=reason)))


def sent(state: State) -> list[tuple[str, list[str]]]:
    """The messages, as roles and texts."""
    messages = json.loads(HARNESS.request(state).body)["messages"]
    return [(m["role"], [_said(block) for block in m["content"]]) for m in messages]


def _said(block: dict[str, Any]) -> str:
    if block["type"] == "tool_result":
        return "result " + "".join(part["text"] for part in block["content"])
    return str(block.get("text", block["type"]))


def test_it_is_a_system_turn_behind_the_message_that_it_goes_with() -> None:
    log = Log().user("Hello").system("Be formal.", "Sign as Bo.").start()
    assert sent(log.state) == [("user", ["Hello"]), ("system", ["Be formal.", "Sign as Bo."])]
    body = json.loads(HARNESS.request(log.state).body)
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert body["system"][0]["text"] == "Be brief."


def test_it_stays_where_it_is_in_every_later_request() -> None:
    log = Log().user("Hello").system("Be formal.").start()
    first = HARNESS.request(log.state).body
    log.add(Event(agent_message=AgentMessage(content=[text("Good day.")]))).end().idle()
    log.user("And now?").start()
    second = HARNESS.request(log.state).body
    assert sent(log.state) == [
        ("user", ["Hello"]),
        ("system", ["Be formal."]),
        ("assistant", ["Good day."]),
        ("user", ["And now?"]),
    ]
    mark = b',"cache_control":{"type":"ephemeral"}'
    plain = [body.replace(mark, b"") for body in (first, second)]
    assert plain[1].startswith(plain[0].removesuffix(b"]}"))


def test_alone_on_a_session_at_rest_it_comes_behind_the_next_message() -> None:
    log = Log().user("Hello").reply("Hi.").idle().system("Be formal.")
    assert not log.state.needs_model
    log.user("Go on").start()
    assert sent(log.state)[-2:] == [("user", ["Go on"]), ("system", ["Be formal."])]


def test_with_a_tool_result_it_comes_behind_all_the_results_of_the_response() -> None:
    log = Log().user("Ask").start()
    for call in ("a", "b"):
        log.add(Event(id=call, agent_custom_tool_use=AgentCustomToolUse(name="ask", input="{}")))
    log.end()

    def answer(call: str) -> Event:
        result = UserCustomToolResult(custom_tool_use_id=call, content=[text(call)])
        return Event(user_custom_tool_result=result)

    log.add(answer("b")).system("Prices are net.").add(answer("a")).start("next")
    assert sent(log.state)[-2:] == [
        ("user", ["result a", "result b"]),
        ("system", ["Prices are net."]),
    ]


def test_where_no_reply_followed_it_moves_behind_what_the_user_says_next() -> None:
    log = Log().user("Hello").system("Be formal.").start().end(is_error=True)
    log.add(Event(user_interrupt=UserInterrupt())).idle().system("Be quick.").user("Hey").start()
    assert sent(log.state) == [
        ("user", ["Hello", "Hey"]),
        ("system", ["Be formal.", "Be quick."]),
    ]


def test_a_request_that_is_made_again_has_it_once() -> None:
    log = Log().user("Hello").system("Be formal.").start().end(is_error=True).start("again")
    assert sent(log.state) == [("user", ["Hello"]), ("system", ["Be formal."])]


def test_a_refusal_takes_the_users_words_back_and_not_the_operators() -> None:
    log = Log().user("Hello").reply("Hi.").idle()
    log.user("Evil").system("Be formal.").start().end(stop_reason="refusal").idle()
    log.user("Nice").start()
    assert sent(log.state) == [
        ("user", ["Hello"]),
        ("assistant", ["Hi."]),
        ("user", ["Nice"]),
        ("system", ["Be formal."]),
    ]


def test_a_summary_leaves_the_operators_words_standing() -> None:
    log = Log().user("Hello").system("Be formal.").reply("Hi.").idle()
    log.user("More").reply("Yes.").idle()
    state = log.state
    state.instructions.restate(state.transcript, 3)
    state.transcript.compact(3, content.text_block("Summary."))
    log.user("Go on").start()
    assert sent(state) == [
        ("user", ["Summary.", "More"]),
        ("assistant", ["Yes."]),
        ("user", ["Go on"]),
        ("system", ["Be formal."]),
    ]


def test_summary_in_a_turn_that_is_refused_afterwards_states_no_order_twice() -> None:
    log = Log().user("Hello").reply("Hi.").idle().user("Go").system("One.", "Two.").reply("Went.")
    transcript, orders = log.state.transcript, log.state.instructions
    orders.restate(transcript, 4)
    transcript.compact(4, content.text_block("Summary."))
    orders.place(transcript)
    orders.drop_turn()
    told = json.loads(b"[%b]" % b",".join(orders.pending))
    assert [block["text"] for block in told] == ["One.", "Two."]


def test_what_is_asked_for_a_summary_comes_before_the_systems_word() -> None:
    log = Log().user("Hello").system("Be formal.").start()
    ask = content.text_block("Sum up.")
    messages = json.loads(log.state.transcript.render(b"[", b"]", breakpoints=2, ask=ask))
    assert [(m["role"], [b["text"] for b in m["content"]]) for m in messages] == [
        ("user", ["Hello", "Sum up."]),
        ("system", ["Be formal."]),
    ]


def test_the_judge_hears_it_as_the_operators_word() -> None:
    log = Log().user("Hello").system("Never delete anything.")
    body = json.loads(judge.request(log.state, []))
    shown = json.loads(body["messages"][0]["content"][0]["text"])
    assert shown["operator"] == ["Never delete anything."]
    assert shown["user"] == ["Hello"]
