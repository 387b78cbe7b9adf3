"""Calls of MCP servers' tools: once each, and with the truth about whether they ran."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.event.v1.mcp_tool_pb2 import McpTool
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    ExecuteResponse,
)
from drover.vault.v1.credential_proxy_service_pb2 import CallResponse
from services.hands.domain import remote
from services.hands.domain.remote import REMOTE, McpCall, McpServer
from services.hands.egress.grants import Grant, Grants
from services.hands.executor import Executor
from services.hands.remote.granted import RemoteGrants
from services.hands.remote.mcp import McpTools
from services.hands.remote.outside import Outside
from services.hands.remote.spilling import Spilling
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

SESSION = "sesn_1"
FILES = McpServer("files")


def said(*texts: str, is_error: bool = False) -> CallResponse:
    content = [ContentBlock(text=TextBlock(text=text)) for text in texts]
    return CallResponse(content=content, is_error=is_error)


class ScriptedProxy:
    """The vault proxy, which does with calls what the test says."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, McpCall]] = []
        self.behave: Callable[[], Awaitable[CallResponse]] = self.answer
        self.tools: dict[str, Callable[[], Awaitable[Sequence[McpTool]]]] = {}
        self.opened: list[tuple[str, str]] = []
        self.revoked: list[str] = []

    async def answer(self) -> CallResponse:
        return said("done")

    async def list_tools(self, grant: Secret, server: str) -> Sequence[McpTool]:
        return await self.tools[server]()

    async def call(self, grant: Secret, call_id: str, call: McpCall) -> CallResponse:
        self.calls.append((grant.open(), call_id, call))
        return await self.behave()

    async def open(self, session_id: str, hand_id: str) -> Grant:
        self.opened.append((session_id, hand_id))
        return Grant(Secret(f"grant {len(self.opened)}"), 1e9, 2e9)

    async def revoke(self, session_id: str) -> None:
        self.revoked.append(session_id)


@pytest.fixture
def proxy(world: World) -> ScriptedProxy:
    proxy = ScriptedProxy()
    rebuild(world, proxy)
    return proxy


def rebuild(world: World, proxy: ScriptedProxy) -> McpTools:
    """A new process over the same journal."""
    grants = RemoteGrants(Grants(proxy, world.tasks, world.clock), world.clock)
    mcp = McpTools(proxy, grants, Spilling(world.pool, world.custody), world.clock)
    nothing: Any = None
    outside = Outside(mcp, nothing, grants)
    world.executor = Executor(world.journal, world.pool, world.tasks, world.custody, outside)
    return mcp


def ask(
    world: World, call_id: str = "c1", server: McpServer = FILES, tool: str = "find"
) -> asyncio.Task[ExecuteResponse]:
    execute = world.executor.execute(SESSION, call_id, 1, tool, '{"a": 1}', destination=server)
    return asyncio.create_task(execute)


def text(result: ExecuteResponse) -> str:
    return "\n".join(block.text.text for block in result.content)


def failing(reason: Reason, code: str = "") -> Callable[[], Awaitable[CallResponse]]:
    async def fail() -> CallResponse:
        about = {"error_code": code} if code else {}
        raise DroverError(reason, "it did not work", **about)

    return fail


async def test_a_call_goes_out_by_a_grant_and_needs_no_sandbox(
    world: World, proxy: ScriptedProxy
) -> None:
    result = await ask(world)
    assert (text(result), result.verdict) == ("done", VERDICT_COMPLETED)
    [(grant, call_id, call)] = proxy.calls
    assert (grant, call_id) == ("grant 1", "c1")
    assert (call.server, call.name, call.text) == ("files", "find", '{"a": 1}')
    assert proxy.opened == [(SESSION, REMOTE)]
    assert not world.backend.launched
    again = await ask(world)
    assert again.replayed
    assert len(proxy.calls) == 1


async def test_a_server_cannot_have_its_tools_taken_for_ones_that_may_run_twice(
    world: World, proxy: ScriptedProxy
) -> None:
    proxy.behave = asyncio.Event().wait  # type: ignore[assignment]  # never answers
    asked = ask(world, tool="read")
    await eventually(lambda: len(proxy.calls) == 1)
    rebuild(world, proxy)
    result = await ask(world, tool="read")
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert len(proxy.calls) == 1
    asked.cancel()
    for task in asyncio.all_tasks():
        if task.get_name().startswith("call "):
            task.cancel()


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.INTERNAL, Reason.DEADLINE_EXCEEDED])
async def test_a_call_that_may_have_been_sent_is_of_unknown_outcome(
    world: World, proxy: ScriptedProxy, reason: Reason
) -> None:
    proxy.behave = failing(reason, remote.OUTCOME_UNKNOWN)
    result = await ask(world)
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert "whether and how far" in text(result)
    again = await ask(world)
    assert again.verdict == VERDICT_OUTCOME_UNKNOWN
    assert len(proxy.calls) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (remote.CONNECTION_FAILED, "mcp_connection_failed_error"),
        (remote.AUTHENTICATION_FAILED, "mcp_authentication_failed_error"),
    ],
)
async def test_a_server_that_was_not_reached_ran_nothing_and_is_told_of(
    world: World, proxy: ScriptedProxy, code: str, kind: str
) -> None:
    proxy.behave = failing(Reason.UNAVAILABLE, code)
    result = await ask(world)
    assert result.verdict == VERDICT_NOT_RUN
    assert "nothing was run: it did not work" in text(result)
    [error] = result.errors
    assert error.WhichOneof("error") == kind
    assert getattr(error, kind).mcp_server_name == "files"


async def test_a_call_that_was_not_sent_may_be_asked_for_again(
    world: World, proxy: ScriptedProxy
) -> None:
    proxy.behave = failing(Reason.UNAVAILABLE)
    with pytest.raises(DroverError) as refused:
        await ask(world)
    assert refused.value.reason is Reason.UNAVAILABLE
    proxy.behave = proxy.answer
    assert (await ask(world)).verdict == VERDICT_COMPLETED


async def test_a_grant_that_is_void_is_replaced_once(world: World, proxy: ScriptedProxy) -> None:
    async def void_at_first() -> CallResponse:
        if len(proxy.calls) == 1:
            raise DroverError(Reason.PERMISSION_DENIED, "the grant is void")
        return said("done")

    proxy.behave = void_at_first
    assert text(await ask(world)) == "done"
    assert [grant for grant, _, _ in proxy.calls] == ["grant 1", "grant 2"]
    proxy.behave = failing(Reason.PERMISSION_DENIED)
    with pytest.raises(DroverError):
        await ask(world, "c2")
    assert len(proxy.calls) == 4


async def test_a_cancelled_call_ends_and_its_connection_with_it(
    world: World, proxy: ScriptedProxy
) -> None:
    ended = asyncio.Event()

    async def slow() -> CallResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return said()

    proxy.behave = slow
    asked = ask(world)
    await eventually(lambda: len(proxy.calls) == 1)
    await world.executor.cancel(SESSION, 1, ["c1"])
    assert ended.is_set()
    assert (await asked).verdict == VERDICT_CANCELLED


async def test_a_long_answer_is_in_a_file_of_the_sessions_sandbox(
    world: World, proxy: ScriptedProxy
) -> None:
    picture = ContentBlock()
    picture.image.source.base64.data = "iVBORw0KGgo="
    long = said("head" + "x" * 60_000, "y" * 60_000 + "tail")
    long.content.append(picture)

    async def answer() -> CallResponse:
        return long

    proxy.behave = answer
    asked = ask(world)
    await eventually(lambda: len(world.backend.launched) == 1)
    sandbox = world.backend.launched[0]
    write = await sandbox.frames.get()
    assert write["tool"] == "write"
    assert write["input"]["file_path"] == "/mnt/session/tool_outputs/c1.txt"
    assert len(write["input"]["content"]) == 120_010
    sandbox.answer(write, "wrote")
    result = await asked
    assert [block.WhichOneof("block") for block in result.content] == ["text", "image"]
    shown = text(result)
    assert len(shown) < 11_000
    assert shown.startswith("head")
    assert "120010 characters and is in /mnt/session/tool_outputs/c1.txt" in shown


async def test_a_long_answer_of_a_session_without_a_sandbox_is_cut(
    world: World, proxy: ScriptedProxy
) -> None:
    async def answer() -> CallResponse:
        return said("x" * 200_000)

    proxy.behave = answer
    result = await ask(world, server=McpServer("files", spills=False))
    assert "could not be written to a file" in text(result)
    assert not world.backend.launched


async def test_input_that_is_no_object_is_refused_before_anything_is_sent(
    world: World, proxy: ScriptedProxy
) -> None:
    result = await world.executor.execute(SESSION, "c1", 1, "find", "[1]", destination=FILES)
    assert result.verdict == VERDICT_NOT_RUN
    assert proxy.calls == []


async def test_servers_are_listed_at_once_and_each_has_its_own_outcome(
    world: World, proxy: ScriptedProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def offers() -> Sequence[McpTool]:
        return [McpTool(name="find")]

    async def down() -> Sequence[McpTool]:
        raise DroverError(Reason.UNAVAILABLE, "down", error_code=remote.CONNECTION_FAILED)

    async def locked() -> Sequence[McpTool]:
        raise DroverError(Reason.UNAVAILABLE, "locked", error_code=remote.AUTHENTICATION_FAILED)

    async def silent() -> Sequence[McpTool]:
        await asyncio.Event().wait()
        return []

    mcp = rebuild(world, proxy)
    proxy.tools = {"files": offers, "mail": down, "bank": locked}
    await mcp.list_tools(SESSION, list(proxy.tools))
    assert len(proxy.opened) == 1
    # With the grant at hand the others answer at once, and no slow machine makes them late.
    monkeypatch.setattr(remote, "LIST_SECONDS", 0.05)
    proxy.tools["mute"] = silent
    outcomes = await mcp.list_tools(SESSION, list(proxy.tools))
    assert [one.mcp_server_name for one in outcomes] == list(proxy.tools)
    assert [tool.name for tool in outcomes[0].tools] == ["find"]
    kinds = [one.error.WhichOneof("error") for one in outcomes[1:]]
    assert kinds == [
        "mcp_connection_failed_error",
        "mcp_authentication_failed_error",
        "mcp_connection_failed_error",
    ]
    assert "did not list its tools" in outcomes[3].error.message
    assert len(proxy.opened) == 1


async def test_the_end_of_a_session_ends_its_grants(world: World, proxy: ScriptedProxy) -> None:
    await ask(world)
    await world.executor.release(SESSION)
    assert proxy.revoked == [SESSION]
