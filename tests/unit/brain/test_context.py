"""What the model is sent once not everything fits: cleared, summarised, and never torn apart."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from drover.agent.v1.tool_pb2 import AgentToolset, CustomTool, Tool
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import PlainError, SessionError, SessionUpdated
from drover.event.v1.user_event_pb2 import SystemContent, SystemMessage
from services.brain.domain import events, response
from services.brain.domain.decision import CallModel, Compact, GiveUp, Limits, Mine, Release
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.compaction import HEADING, OMITTED, PROMPT, CompactionPolicy
from services.brain.harness.standard import StandardHarness
from services.brain.loop import summary
from tests.doubles import scripted_model as model
from tests.doubles.api_history import check_history
from tests.doubles.prompt_cache import PromptCache
from tests.unit.brain import logs

QUIET = logs.InputWaiting()


class Talk:
    """A session that is talked through by hand."""

    def __init__(self, harness: StandardHarness, *tools: Tool) -> None:
        self.harness = harness
        self.factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")
        self.session = logs.session(*tools)
        self.log: list[Event] = []
        self.state = harness.begin(self.session)

    def add(self, *more: Event) -> None:
        for event in more:
            self.log.append(event)
            self.harness.project(self.state, event, 0.0)

    def start(self) -> None:
        self.add(self.factory.request_start())

    def ask(self, text: str = "Hi") -> None:
        self.add(logs.message(text), *self.factory.running(), self.factory.request_start())

    def reply(self, *blocks: list[model.Raw], tokens: int = 0, **options: Any) -> None:
        """The model replies, having counted so many tokens, or about what was sent."""
        sent = tokens or len(self.harness.request(self.state).body) // 4
        raws = model.response(*blocks, usage={"input_tokens": sent}, **options)
        assembler = response.ResponseAssembler(self.factory)
        for raw in raws:
            assembler.feed(raw)
        finished = assembler.finish(self.state.request, self.state.permissions)
        if self.state.context.compacting:
            finished = summary.of(finished, self.factory, last_try=True)
        self.add(*finished)

    def overflow(self) -> None:
        self.add(self.factory.request_failed(self.state.request, overflow=True))

    def result(self, text: str) -> None:
        for call in self.state.open_calls():
            self.add(self.factory.result(call.id, [events.text(text)], is_error=False))

    def work(self, size: int, number: int) -> None:
        """A turn with one tool call whose result has so many bytes."""
        self.ask(f"question {number}")
        call = model.tool("bash", {"command": "ls"}, f"toolu_{number}")
        self.reply(model.thinking("hm"), call)
        self.result(f"{number}:" + "x" * size)
        self.start()
        self.reply(model.thinking("hm, hm"), model.text(f"answer {number}"))

    @property
    def next(self) -> object:
        return self.harness.decide(self.state, QUIET, Mine(self.state.request))

    @property
    def body(self) -> dict[str, Any]:
        sent: dict[str, Any] = json.loads(
            self.harness.request(self.state).body, object_pairs_hook=_once
        )
        check_history(sent)
        return sent


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; no request says one thing twice, which servers read differently."""
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def harness(window: int = 10_000, **options: Any) -> StandardHarness:
    clearing = ClearingPolicy(begin=0.5, least=0.2, keep=2)
    compaction = CompactionPolicy(begin=0.8, tail=0.1, reply=1_000)
    given_: dict[str, Any] = {"clearing": clearing, "compaction": compaction} | options
    return StandardHarness(windows=lambda _: window, **given_)


def texts(sent: dict[str, Any]) -> list[str]:
    """What the results in a request say."""
    return [
        block["content"][0]["text"]
        for message in sent["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def kinds(sent: dict[str, Any]) -> list[str]:
    return [block["type"] for message in sent["messages"] for block in message["content"]]


def tools(sent: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in sent.get("tools", [])]


def test_old_results_and_thoughts_give_way_to_notes_past_the_share_of_the_window() -> None:
    talk = Talk(harness())
    for number in range(5):
        talk.work(2_000, number)
        assert not talk.state.context.trimmed
    talk.work(2_000, 5)
    talk.work(2_000, 6)
    talk.ask("and now?")
    sent = talk.body
    told = texts(sent)
    assert [text.startswith("[This result (2,") for text in told] == [True] * 5 + [False] * 2
    assert kinds(sent).count("thinking") < 14
    first = next(event for event in talk.log if event.HasField("agent_tool_result"))
    assert f'{{"event_id":"{first.id}"}}' in told[0]
    assert "session_history" in tools(sent)


def test_nothing_is_cleared_and_no_tool_is_offered_while_there_is_room() -> None:
    talk = Talk(harness(window=200_000))
    for number in range(8):
        talk.work(2_000, number)
    talk.ask()
    assert all(len(text) > 2_000 for text in texts(talk.body))
    assert kinds(talk.body).count("thinking") == 16
    assert "session_history" not in tools(talk.body)


def test_steps_are_rare_so_that_the_cache_holds_in_between() -> None:
    talk = Talk(harness(30_000, compaction=CompactionPolicy(begin=0.95, reply=100)))
    mark = b',"cache_control":{"type":"ephemeral"}'
    before, broken, requests = b"", 0, 0
    for number in range(100):
        talk.ask(f"question {number}")
        plain = talk.harness.request(talk.state).body.replace(mark, b"")
        broken += not plain.startswith(before.removesuffix(b"]}]}"))
        requests, before = requests + 1, plain
        talk.reply(model.tool("bash", {}, f"toolu_{number}"))
        talk.result("x" * 1_500)
        talk.start()
        talk.reply(model.text("ok"))
    assert 2 <= broken <= requests / 10


def test_step_that_frees_little_is_not_taken() -> None:
    talk = Talk(harness())
    for number in range(12):
        talk.ask("long " * 300)
        talk.reply(model.thinking("hm"), model.text(f"answer {number}"))
    assert kinds(json.loads(talk.harness.request(talk.state).body)).count("thinking") > 8


def test_newest_results_of_the_open_turn_are_sent_whatever_their_size() -> None:
    talk = Talk(harness(clearing=ClearingPolicy(begin=0.2, least=0.05, keep=0)))
    talk.work(3_000, 0)
    talk.ask()
    calls = [model.tool("bash", {}, f"toolu_b{number}") for number in range(3)]
    talk.reply(*calls)
    talk.result("y" * 3_000)
    talk.start()
    told = texts(talk.body)
    assert told[0].startswith("[This result")
    assert [len(text) for text in told[1:]] == [3_000] * 3


def test_request_for_a_summary_is_the_conversation_as_it_was_with_the_order_behind() -> None:
    talk = Talk(harness(clearing=ClearingPolicy(begin=1.0)))
    number = 0
    while not talk.state.context.compacting:
        if number:
            talk.reply(model.text("x" * 2_000))
        before = talk.harness.request(talk.state).body
        number += 1
        talk.ask(f"question {number}")
    assert talk.next == Compact()
    mark = b',"cache_control":{"type":"ephemeral"}'
    plain = talk.harness.request(talk.state).body.replace(mark, b"")
    assert plain.startswith(before.replace(mark, b"").removesuffix(b"]}]}"))
    last = talk.body["messages"][-1]["content"]
    assert [block["text"] for block in last] == [f"question {number}", PROMPT]
    assert "tool_choice" not in talk.body
    # One that said nothing is asked without its tools.
    talk.add(talk.factory.request_failed(talk.state.request))
    error = logs.SessionError(message="no", unknown_error=logs.PlainError())
    talk.add(talk.factory.error(error, retrying=True), *talk.factory.running())
    talk.start()
    assert talk.body["tool_choice"] == {"type": "none"}


def test_summary_is_asked_for_out_of_the_cache() -> None:
    talk, cache = Talk(harness(clearing=ClearingPolicy(begin=1.0))), PromptCache()
    before = 0
    for number in itertools.count():
        talk.ask(f"question {number}")
        found = cache.send(talk.harness.request(talk.state).body)
        assert found.cache_read == before
        if talk.next == Compact():
            break
        before = found.total
        talk.reply(model.thinking("hm"), model.text("y" * 2_000))
    assert found.cache_read > 5 * found.input_tokens


def test_system_messages_stay_in_their_place_so_that_the_cache_holds() -> None:
    talk, cache = Talk(harness(window=200_000)), PromptCache()
    before = 0
    for number in range(6):
        talk.add(logs.message(f"question {number}"))
        if number % 2:
            said = [SystemContent(text=f"mind {number}")]
            talk.add(Event(system_message=SystemMessage(content=said)))
        talk.add(*talk.factory.running(), talk.factory.request_start())
        for call in (True, False):
            found = cache.send(talk.harness.request(talk.state).body)
            assert (found.cache_read, found.input_tokens) == (before, 0)
            before = found.total
            if call:
                talk.reply(model.tool("bash", {}, f"toolu_{number}"))
                talk.result("there")
                talk.start()
        talk.reply(model.text("done"))
    sent = json.loads(talk.harness.request(talk.state).body)["messages"]
    roles = [message["role"] for message in sent]
    assert roles.count("system") == 3


def compacted(talk: Talk) -> None:
    """Talks until a summary was made."""
    for number in itertools.count():
        talk.ask(f"question {number}")
        if talk.next == Compact():
            break
        talk.reply(model.thinking("hm"), model.text("y" * 2_000))
    talk.reply(model.text("All that was."), model.tool("bash", {}))


def test_summary_takes_the_place_of_all_but_the_newest_messages() -> None:
    talk = Talk(harness(clearing=ClearingPolicy(begin=1.0)))
    compacted(talk)
    assert [event.WhichOneof("payload") for event in talk.log[-2:]] == [
        "agent_thread_context_compacted",
        "span_model_request_end",
    ]
    assert talk.log[-2].agent_thread_context_compacted.summary == "All that was."
    assert talk.state.needs_model
    assert talk.next == CallModel()
    talk.start()
    assert talk.next == CallModel()
    sent = talk.body
    assert sent["messages"][0]["content"][0]["text"] == f"{HEADING}All that was."
    assert sent["messages"][-1]["content"][-1]["text"].startswith("question")
    assert len(json.dumps(sent["messages"])) < 8_000
    assert "session_history" in tools(sent)
    assert len(talk.log) > 40


def test_second_summary_stands_for_the_first_one_too() -> None:
    talk = Talk(harness(clearing=ClearingPolicy(begin=1.0)))
    compacted(talk)
    talk.start()
    talk.reply(model.text("fine"))
    compacted(talk)
    talk.start()
    assert json.dumps(talk.body).count("was summarised to make room") == 1
    assert talk.state.context.cramped == 1


def test_overflow_that_the_api_tells_of_leads_to_a_summary_of_what_will_fit() -> None:
    talk = Talk(harness(window=40_000))
    for number in range(3):
        talk.work(9_000, number)
    talk.ask("the last question")
    assert talk.next == CallModel()
    talk.overflow()
    assert talk.next == CallModel()
    talk.start()
    assert talk.next == Compact()
    sent = talk.body
    assert all(text.startswith("[This result") for text in texts(sent))
    assert "the last question" not in json.dumps(sent)
    assert sent["tool_choice"] == {"type": "none"}
    talk.overflow()
    talk.overflow() if talk.state.request else talk.start()
    assert talk.next == Compact()
    talk.reply(model.text("In short."))
    talk.start()
    assert talk.body["messages"][-1]["content"][-1]["text"] == "the last question"


def test_older_messages_are_left_out_of_a_summary_that_would_not_fit_itself() -> None:
    talk = Talk(harness(window=10_000, clearing=ClearingPolicy(begin=1.0)))
    for number in range(6):
        talk.ask("long " * 800)
        talk.reply(model.text(f"answer {number}"))
    talk.ask("and?")
    talk.overflow()
    talk.start()
    first = talk.body["messages"][0]["content"][0]["text"]
    assert first == OMITTED
    assert len(json.dumps(talk.body["messages"])) < 5_000 * 4


def test_turn_whose_context_cannot_be_made_to_fit_is_given_up() -> None:
    talk = Talk(harness())
    talk.work(100, 0)
    talk.ask("huge " * 20_000)
    decisions = []
    for _ in range(10):
        decisions.append(talk.next)
        if isinstance(decisions[-1], GiveUp):
            break
        if not talk.state.request:
            talk.start()
        elif decisions[-1] == Compact():
            talk.reply(model.text("little"))
        else:
            talk.overflow()
    last = decisions[-1]
    assert isinstance(last, GiveUp)
    assert last.error.HasField("compaction_limit_reached_error")
    talk.add(talk.factory.error(last.error, retrying=False))
    talk.add(*talk.factory.idle(events.exhausted(), None, talk.state.usage.snapshot(0.0), None))
    assert talk.next == Release()
    assert talk.state.context.cramped == 0


@pytest.mark.parametrize("before", [0, 1, 4])
def test_result_that_no_window_holds_becomes_a_note_where_nothing_else_helps(before: int) -> None:
    talk = Talk(harness())
    for number in range(before):
        talk.work(100, number)
    talk.ask("the question")
    talk.reply(*(model.tool("bash", {}, f"toolu_b{number}") for number in range(2)))
    small, large = talk.state.open_calls()
    talk.add(talk.factory.result(small.id, [events.text("kept")], is_error=False))
    talk.add(talk.factory.result(large.id, [events.text("y" * 100_000)], is_error=False))
    sent = fitting(talk, 40_000)
    kept, cleared = texts(sent)[-2:]
    assert kept == "kept"
    assert cleared.startswith("[This result (100,")
    assert "session_history" in tools(sent)
    talk.reply(model.text("I see."))
    assert talk.state.context.cramped == 0


def test_turn_after_one_that_was_given_up_for_its_results_goes_on() -> None:
    """As sessions do that an older release left so."""
    talk = Talk(harness())
    talk.ask()
    talk.reply(model.tool("bash", {}, "toolu_b"))
    talk.result("y" * 100_000)
    talk.add(talk.factory.error(SessionError(unknown_error=PlainError()), retrying=False))
    talk.add(*talk.factory.idle(events.exhausted(), None, talk.state.usage.snapshot(0.0), None))
    talk.add(logs.message("and now?"), *talk.factory.running())
    sent = fitting(talk, 40_000)
    assert texts(sent)[0].startswith("[This result")
    assert "and now?" in json.dumps(sent)


def fitting(talk: Talk, most: int) -> dict[str, Any]:
    """The first request for the turn that an API takes with so many bytes at most."""
    while not isinstance(talk.next, GiveUp):
        if not talk.state.request:
            talk.start()
        if len(talk.harness.request(talk.state).body) > most:
            talk.overflow()
        elif talk.next == Compact():
            talk.reply(model.text("In short."))
        else:
            return talk.body
    raise AssertionError("it was given up")


def test_harness_that_does_not_compact_says_so_at_once() -> None:
    talk = Talk(harness(limits=Limits(compactions=0)))
    talk.ask()
    talk.overflow()
    assert isinstance(talk.next, GiveUp)


def test_tool_that_looks_back_can_be_had_from_the_start() -> None:
    talk = Talk(harness())
    talk.session.agent.metadata["drover.session_history"] = "on"
    talk.state = talk.harness.begin(talk.session)
    talk.ask()
    assert tools(talk.body)[-1] == "session_history"
    talk.reply(model.tool("session_history", {"text": "x"}))
    (call,) = talk.state.open_calls()
    assert call.answerer is logs.Answerer.LOG


def test_custom_tool_of_the_same_name_stays_the_clients() -> None:
    mine = Tool(custom=CustomTool(name="session_history", description="Mine.", input_schema="{}"))
    talk = Talk(harness(), mine)
    talk.session.agent.metadata["drover.session_history"] = "on"
    talk.state = talk.harness.begin(talk.session)
    talk.ask()
    assert [tool["description"] for tool in talk.body["tools"]] == ["Mine."]


def test_tools_that_the_agent_lost_are_still_named_where_the_conversation_has_calls() -> None:
    talk = Talk(harness(), Tool(agent_toolset=AgentToolset()))
    talk.work(10, 0)
    bare = logs.agent()
    del bare.tools[:]
    talk.add(Event(session_updated=SessionUpdated(agent=bare)))
    talk.ask("still there?")
    sent = talk.body
    assert [(tool["name"], tool["input_schema"]) for tool in sent["tools"]] == [
        ("bash", {"type": "object"})
    ]
    assert sent["tool_choice"] == {"type": "none"}


def test_summary_for_an_agent_whose_tools_are_gone_says_once_that_they_are_off() -> None:
    talk = Talk(harness())
    talk.work(10, 1)
    bare = logs.agent()
    del bare.tools[:]
    talk.add(Event(session_updated=SessionUpdated(agent=bare)))
    talk.ask("more")
    talk.overflow()
    talk.start()
    assert talk.next == Compact()
    assert talk.body["tool_choice"] == {"type": "none"}


def test_agent_that_never_had_tools_names_none() -> None:
    talk = Talk(harness())
    del talk.session.agent.tools[:]
    talk.state = talk.harness.begin(talk.session)
    talk.ask()
    assert "tools" not in talk.body
    assert "tool_choice" not in talk.body
