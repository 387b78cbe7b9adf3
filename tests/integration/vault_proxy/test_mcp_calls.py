"""Calls of MCP tools against servers of the official library."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from chassis.errors import DroverError, Reason
from tests.doubles.mcp_server import PNG, McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@pytest.fixture
async def world(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    async with mcp_world(server.port, server.faults_port) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/mcp", "2026-07-28"),
        ("/json/mcp", "2026-07-28"),
        ("/old", "2025-11-25"),
        ("/sse", "2025-11-25"),
    ],
)
async def test_every_version_and_transport_is_spoken(
    world: World, server: McpServer, path: str, version: str
) -> None:
    facts = world.facts(server.url(path))
    listed = await world.servers.list_tools(facts, "srv")
    assert listed.protocol_version == version
    echo = listed.tools[0]
    assert (echo.name, echo.description) == ("echo", "Says it again.")
    assert json.loads(echo.input_schema)["properties"] == {"text": {"type": "string"}}
    assert json.loads(echo.annotations) == {"readOnlyHint": True}
    answer = await world.servers.call(facts, "srv", "echo", '{"text": "hä?"}', "c1")
    assert [block.text.text for block in answer.content] == ["hä?"]
    assert not answer.is_error
    assert world.trail.reasons() == [("tools/list", ""), ("tools/call", "")]


async def test_results_of_every_kind_are_shown(world: World, server: McpServer) -> None:
    facts = world.facts(server.url())

    async def shown(tool: str) -> str:
        answer = await world.servers.call(facts, "srv", tool, '{"a": 1, "b": 2}', "c")
        return " ".join(block.text.text for block in answer.content)

    assert await shown("add") == '{"sum": 3}'
    assert await shown("report") == "[resource file:///report.txt]\nall is well"
    assert "audio/wav" in await shown("audio")
    assert await shown("link") == (
        "[link to a resource: a file, file:///a.txt, text/plain, of text]"
    )
    assert "file:///data.bin" in await shown("blob")
    image = (await world.servers.call(facts, "srv", "image", "", "c")).content[0].image.source
    assert image.base64.media_type == "image/png"
    assert base64.b64decode(image.base64.data) == PNG
    document = (await world.servers.call(facts, "srv", "pdf", "", "c")).content[0].document
    assert document.source.base64.media_type == "application/pdf"


async def test_a_tools_own_error_is_its_result(world: World, server: McpServer) -> None:
    answer = await world.servers.call(world.facts(server.url()), "srv", "fail", "{}", "c")
    assert answer.is_error
    assert answer.content[0].text.text == "it did not work"


async def test_many_pages_of_tools_are_one_list(world: World, server: McpServer) -> None:
    server.offer(page=3, more=20)
    try:
        listed = await world.servers.list_tools(world.facts(server.url()), "srv")
    finally:
        server.offer(page=0, more=0)
    assert len({tool.name for tool in listed.tools}) == 38


async def test_calls_side_by_side_each_get_their_own_answer(
    world: World, server: McpServer
) -> None:
    for path in ("/mcp", "/old", "/sse"):
        facts = world.facts(server.url(path))
        texts = [json.dumps({"text": str(number)}) for number in range(20)]
        slow = world.servers.call(facts, "srv", "slow", '{"seconds": 0.2}', "c")
        echoes = (world.servers.call(facts, "srv", "echo", text, "c") for text in texts)
        first, *answers = await asyncio.gather(slow, *echoes)
        assert first.content[0].text.text == "done"
        assert [one.content[0].text.text for one in answers] == [str(n) for n in range(20)]


async def test_a_connection_serves_later_calls_of_its_session_alone(
    world: World, server: McpServer
) -> None:
    for session in ("sesn_1", "sesn_1", "sesn_2"):
        facts = world.facts(server.url("/old"), session=session)
        await world.servers.call(facts, "srv", "echo", "{}", "c")
    greetings = [one for one in server.report()["seen"] if one["method"] == "initialize"]
    assert len(greetings) == 2


async def test_trace_context_goes_with_the_call(world: World, server: McpServer) -> None:
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)):
        await world.servers.call(world.facts(server.url()), "srv", "echo", "{}", "c")
    assert server.report()["metas"][0]["traceparent"].startswith("00-" + f"{0xABC:032x}")


async def test_a_server_that_the_agent_does_not_have_is_not_found(
    world: World, server: McpServer
) -> None:
    with pytest.raises(DroverError) as refused:
        await world.servers.list_tools(world.facts(server.url()), "other")
    assert refused.value.reason is Reason.NOT_FOUND
