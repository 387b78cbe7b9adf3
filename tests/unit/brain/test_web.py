"""Calls of the web tools: who answers them, by what they go, and what their results count for."""

from __future__ import annotations

import json

import pytest

from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    URL_SOURCE_TYPE_NONE,
    AgentToolConfig,
    AgentToolset,
    CustomTool,
    PermissionPolicy,
    Tool,
    UrlSource,
    UrlSources,
    UserLocation,
    WebSettings,
)
from drover.event.v1.content_pb2 import ContentBlock
from drover.event.v1.event_pb2 import Event
from drover.event.v1.user_event_pb2 import (
    CONFIRMATION_RESULT_ALLOW,
    UserCustomToolResult,
    UserToolConfirmation,
)
from services.brain.domain import events, response
from services.brain.domain.calls import Answerer, Call
from services.brain.domain.checkpoint import Checkpoints
from services.brain.domain.state import State
from tests.doubles import scripted_model as model
from tests.unit.brain import logs
from tests.unit.brain.logs import HARNESS, fold

BOTH = ("web_fetch", "web_search")
ASK = PermissionPolicy(type=PERMISSION_POLICY_TYPE_ALWAYS_ASK)
PAGE = "https://a.example/page"


def toolset(*configs: AgentToolConfig, web_tools: tuple[str, ...] = BOTH) -> Tool:
    return Tool(agent_toolset=AgentToolset(configs=configs, web_tools=web_tools))


class Log:
    """A log of a session with these tools, at first with a message of the user's."""

    def __init__(self, *tools: Tool, text: str = "Hi", self_hosted: bool = False) -> None:
        self.session = logs.session(*(tools or (toolset(),)), self_hosted=self_hosted)
        self.factory = events.EventFactory(logs.Numbered(), "sthr_1", "Worker")
        self.events = [logs.message(text), *self.factory.running()]

    def state(self) -> State:
        return fold(self.session, self.events)

    def calls(self, name: str, **given: object) -> Call:
        """The model calls the tool."""
        start = self.factory.request_start()
        self.events.append(start)
        assembler = response.ResponseAssembler(self.factory)
        for raw in model.response(model.tool(name, given, f"toolu_{len(self.events)}")):
            assembler.feed(raw)
        self.events += assembler.finish(start.id, self.state().permissions)
        return self.call()

    def call(self) -> Call:
        return list(self.state().calls.values())[-1]

    def answers(self, *content: ContentBlock, is_error: bool = False) -> None:
        call_id = self.call().id
        self.events.append(self.factory.result(call_id, content, is_error=is_error))

    def says(self, text: str) -> None:
        self.events.append(logs.message(text))


def refused(call: Call, code: str) -> bool:
    return call.answerer is Answerer.HARNESS and f"web_fetch failed: {code}." in call.refusal


def test_the_model_is_told_of_the_web_tools_that_the_session_was_given() -> None:
    def told(log: Log) -> list[str]:
        return [tool["name"] for tool in json.loads(HARNESS.request(log.state()).body)["tools"]]

    assert told(Log())[-2:] == ["web_fetch", "web_search"]
    assert told(Log(toolset(web_tools=("web_fetch",))))[-1] == "web_fetch"
    assert told(Log(toolset(web_tools=())))[-1] == "grep"


def test_a_web_tool_that_the_session_was_not_given_is_denied() -> None:
    log = Log(toolset(web_tools=("web_fetch",)), text=PAGE)
    call = log.calls("web_search", query="x")
    assert call.answerer is Answerer.HARNESS
    assert call.refusal == "Permission to use web_search has been denied."


def test_a_page_that_the_user_named_is_fetched_by_the_agents_settings() -> None:
    config = AgentToolConfig(
        name="web_fetch", enabled=True, allowed_domains=["a.example"], max_content_tokens=9
    )
    call = Log(toolset(config), text=f"Read {PAGE}.").calls("web_fetch", url=PAGE)
    assert call.answerer is Answerer.HANDS
    assert call.web == WebSettings(allowed_domains=["a.example"], max_content_tokens=9)


def test_a_search_goes_by_its_own_settings() -> None:
    here = UserLocation(country="NO")
    config = AgentToolConfig(
        name="web_search", enabled=True, blocked_domains=["b.example"], user_location=here
    )
    call = Log(toolset(config)).calls("web_search", query="fjords")
    assert call.answerer is Answerer.HANDS
    assert call.web == WebSettings(blocked_domains=["b.example"], user_location=here)


def test_the_server_runs_web_tools_of_self_hosted_sessions_too() -> None:
    call = Log(text=PAGE, self_hosted=True).calls("web_fetch", url=PAGE)
    assert call.answerer is Answerer.HANDS
    assert not call.hosted


def test_a_page_that_nobody_named_is_not_fetched() -> None:
    log = Log(text="Read something.")
    assert refused(log.calls("web_fetch", url=PAGE), "url_not_in_prior_context")


def test_what_the_model_itself_has_written_names_no_page() -> None:
    log = Log()
    log.calls("bash", command=f"echo {PAGE}")
    log.answers(events.text(PAGE))  # nor does the sandbox
    assert refused(log.calls("web_fetch", url=PAGE), "url_not_in_prior_context")
    # Nor does the refusal, which the model could have put the URL into.
    log.answers(events.text(PAGE), is_error=True)
    assert refused(log.calls("web_fetch", url=PAGE), "url_not_in_prior_context")


def test_results_of_the_web_tools_name_pages() -> None:
    log = Log()
    log.calls("web_search", query="pages")
    log.answers(events.text(f"see {PAGE}"))
    assert log.calls("web_fetch", url=PAGE).answerer is Answerer.HANDS
    log.answers(events.text("[next](https://a.example/next)"))
    assert log.calls("web_fetch", url="https://a.example/next").answerer is Answerer.HANDS


def test_results_of_custom_tools_name_pages() -> None:
    custom = CustomTool(name="crm", description="Looks up.", input_schema='{"type":"object"}')
    log = Log(toolset(), Tool(custom=custom))
    call = log.calls("crm")
    found = UserCustomToolResult(custom_tool_use_id=call.id, content=[events.text(PAGE)])
    log.events.append(Event(user_custom_tool_result=found))
    assert log.calls("web_fetch", url=PAGE).answerer is Answerer.HANDS


def test_sources_that_the_agent_shuts_out_name_no_pages() -> None:
    sources = UrlSources(user_input=UrlSource(type=URL_SOURCE_TYPE_NONE))
    config = AgentToolConfig(name="web_fetch", enabled=True, url_sources=sources)
    log = Log(toolset(config), text=PAGE)
    assert refused(log.calls("web_fetch", url=PAGE), "url_not_in_prior_context")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "invalid_tool_input"),
        ({"url": 7}, "invalid_tool_input"),
        ({"url": "a.example"}, "invalid_tool_input"),
        ({"url": "file:///etc/passwd"}, "invalid_tool_input"),
        ({"url": PAGE + "?" + "x" * 2048}, "url_too_long"),
    ],
)
def test_what_is_no_url_is_told_so(given: dict[str, object], code: str) -> None:
    assert refused(Log().calls("web_fetch", **given), code)


def test_a_person_cannot_allow_a_page_that_nobody_named() -> None:
    config = AgentToolConfig(name="web_fetch", enabled=True, permission_policy=ASK)
    for text, answerer in ((PAGE, Answerer.HANDS), ("no", Answerer.HARNESS)):
        log = Log(toolset(config), text=text)
        call = log.calls("web_fetch", url=PAGE)
        assert call.answerer is Answerer.CLIENT
        allow = UserToolConfirmation(tool_use_id=call.id, result=CONFIRMATION_RESULT_ALLOW)
        log.events.append(Event(user_tool_confirmation=allow))
        assert log.call().answerer is answerer


def test_searches_that_went_well_are_counted_and_fetches_are_free() -> None:
    log = Log(text=PAGE)
    for name, given, is_error in (
        ("web_search", {"query": "a"}, False),
        ("web_search", {"query": "b"}, True),
        ("web_search", {"query": "c"}, False),
        ("web_fetch", {"url": PAGE}, False),
    ):
        log.calls(name, **given)
        log.answers(events.text("x"), is_error=is_error)
    used = log.state().usage.snapshot(0.0).server_tool_use
    assert used.web_search_requests == 2
    assert used.web_fetch_requests == 0


def test_a_checkpoint_knows_the_pages_that_were_named() -> None:
    log = Log(text=PAGE)
    state = log.state()
    checkpoints = Checkpoints()
    data = checkpoints.write(state, HARNESS.fold)
    again = checkpoints.read(data, HARNESS.fold, state.session_id, state.seq)
    assert again.links == state.links
