"""The spans of a turn (ARCHITECTURE §10)."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from chassis.telemetry import names, tracing
from services.brain.loop import genai
from tests.doubles.hands_service import result
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", provider)
    return exporter


async def test_turn_has_one_agent_span_with_its_requests_and_tools(
    rig: Rig, spans: InMemorySpanExporter
) -> None:
    session = rig.session()
    rig.model.say(tool("bash", {"command": "secret"}), usage={"cache_read_input_tokens": 3})
    rig.model.say(text("Done."))
    session.message("Go")
    await rig.wake(session)
    by_name = {span.name: span for span in spans.get_finished_spans()}
    agent = by_name["invoke_agent Worker"]
    assert agent.attributes is not None
    assert agent.attributes[genai.CONVERSATION_ID] == session.session.id
    chats = [span for span in spans.get_finished_spans() if span.name == "chat claude-test"]
    run = by_name["execute_tool bash"]
    assert len(chats) == 2
    for span in (*chats, run):
        assert span.parent is not None
        assert span.parent.span_id == agent.context.span_id
    first = chats[0].attributes or {}
    assert first[genai.USAGE_INPUT_TOKENS] == 10
    assert first[genai.USAGE_CACHE_READ] == 3
    assert first[genai.RESPONSE_FINISH_REASONS] == ("tool_use",)
    # What the tool was told, and what it said, are not recorded.
    everything = "".join(str(span.attributes) for span in spans.get_finished_spans())
    assert "secret" not in everything


async def test_every_turn_has_an_agent_span_of_its_own(
    rig: Rig, spans: InMemorySpanExporter
) -> None:
    session = rig.session()
    rig.model.say(text("One."))
    rig.model.say(text("Two."))
    session.message("one")
    session.message("two")
    await rig.wake(session)
    agents = [s for s in spans.get_finished_spans() if s.name.startswith("invoke_agent")]
    assert len(agents) == 2


async def test_failures_mark_their_spans(rig: Rig, spans: InMemorySpanExporter) -> None:
    session = rig.session()

    async def fails(_request: object) -> object:
        return result("no", is_error=True)

    rig.hands.behaviours["ls"] = fails  # type: ignore[assignment]
    rig.model.fail(overloaded())
    rig.model.say(tool("bash", {"command": "ls"}))
    session.message("Go")
    await rig.wake(session)
    marked = {
        span.name: (span.attributes or {}).get(names.ERROR_TYPE)
        for span in spans.get_finished_spans()
        if span.status.status_code is StatusCode.ERROR
    }
    assert marked == {"chat claude-test": "overloaded", "execute_tool bash": "tool_error"}
