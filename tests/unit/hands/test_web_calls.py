"""Calls of the web tools: no sandbox, by a grant, and once more where nobody saw the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.agent.v1.tool_pb2 import WebSettings
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    VERDICT_NOT_RUN,
    VERDICT_OUTCOME_UNKNOWN,
    ExecuteResponse,
)
from drover.vault.v1.credential_proxy_service_pb2 import FetchResponse, SearchResponse
from services.hands.domain.remote import REMOTE
from services.hands.domain.web import WebCall
from services.hands.egress.grants import Grant, Grants
from services.hands.executor import Executor
from services.hands.remote.granted import RemoteGrants
from services.hands.remote.outside import Outside
from services.hands.remote.web import WebPages
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World

SESSION = "sesn_1"
URL = "https://a.example/"
SETTINGS = WebSettings(allowed_domains=["a.example"])


def page(text: str, *, is_error: bool = False) -> FetchResponse:
    return FetchResponse(content=[ContentBlock(text=TextBlock(text=text))], is_error=is_error)


class ScriptedProxy:
    """The vault proxy, which does with calls what the test says."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, WebCall]] = []
        self.behave: Callable[[], Awaitable[FetchResponse]] = self.answer
        self.opened: list[tuple[str, str]] = []

    async def answer(self) -> FetchResponse:
        return page("hello")

    async def ask(
        self, grant: Secret, call_id: str, call: WebCall
    ) -> FetchResponse | SearchResponse:
        self.calls.append((grant.open(), call_id, call))
        return await self.behave()

    async def open(self, session_id: str, hand_id: str) -> Grant:
        self.opened.append((session_id, hand_id))
        return Grant(Secret(f"grant {len(self.opened)}"), 1e9, 2e9)

    async def revoke(self, session_id: str) -> None:
        """Not asked here."""


@pytest.fixture
def proxy(world: World) -> ScriptedProxy:
    proxy = ScriptedProxy()
    rebuild(world, proxy)
    return proxy


def rebuild(world: World, proxy: ScriptedProxy) -> None:
    """A new process over the same journal."""
    grants = RemoteGrants(Grants(proxy, world.tasks, world.clock), world.clock)
    nothing: Any = None
    outside = Outside(nothing, WebPages(proxy, grants, world.clock), grants)
    world.executor = Executor(world.journal, world.pool, world.tasks, world.custody, outside)


def ask(
    world: World, call_id: str = "c1", tool: str = "web_fetch", **given: Any
) -> asyncio.Task[ExecuteResponse]:
    text = json.dumps(given or {"url": URL})
    execute = world.executor.execute(SESSION, call_id, 1, tool, text, destination=SETTINGS)
    return asyncio.create_task(execute)


def text(result: ExecuteResponse) -> str:
    return "\n".join(block.text.text for block in result.content)


def failing(reason: Reason, code: str = "") -> Callable[[], Awaitable[FetchResponse]]:
    async def fail() -> FetchResponse:
        about: Any = {"error_code": code} if code else {}
        raise DroverError(reason, "it did not work", **about)

    return fail


def reached(proxy: ScriptedProxy, starts: int) -> bool:
    return len(proxy.calls) == starts


def forget_calls() -> None:
    """Ends what a process that is gone would not go on with."""
    for task in asyncio.all_tasks():
        if task.get_name().startswith("call "):
            task.cancel()


async def test_a_page_is_asked_for_by_a_grant_and_needs_no_sandbox(
    world: World, proxy: ScriptedProxy
) -> None:
    result = await ask(world)
    assert (text(result), result.verdict) == ("hello", VERDICT_COMPLETED)
    assert proxy.calls == [("grant 1", "c1", WebCall("web_fetch", URL, SETTINGS))]
    assert proxy.opened == [(SESSION, REMOTE)]
    assert not world.backend.launched
    again = await ask(world)
    assert again.replayed
    assert len(proxy.calls) == 1


async def test_an_error_of_the_web_is_a_result(world: World, proxy: ScriptedProxy) -> None:
    async def refuse() -> FetchResponse:
        return page("url_not_allowed", is_error=True)

    proxy.behave = refuse
    result = await ask(world)
    assert result.is_error
    assert result.verdict == VERDICT_COMPLETED


async def test_a_call_whose_end_nobody_saw_is_run_once_more_and_no_oftener(
    world: World, proxy: ScriptedProxy
) -> None:
    proxy.behave = asyncio.Event().wait  # type: ignore[assignment]  # never answers
    for starts in (1, 2):
        asked = ask(world)
        await eventually(partial(reached, proxy, starts))
        asked.cancel()
        rebuild(world, proxy)
    result = await ask(world)
    assert result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert len(proxy.calls) == 2
    forget_calls()


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.RESOURCE_EXHAUSTED])
async def test_a_proxy_that_is_away_is_asked_again_by_whoever_asked(
    world: World, proxy: ScriptedProxy, reason: Reason
) -> None:
    proxy.behave = failing(reason)
    with pytest.raises(DroverError):
        await ask(world)
    proxy.behave = proxy.answer
    assert text(await ask(world)) == "hello"


@pytest.mark.parametrize("reason", [Reason.DEADLINE_EXCEEDED, Reason.INTERNAL, Reason.ARCHIVED])
async def test_what_will_not_go_better_is_told_as_unavailable(
    world: World, proxy: ScriptedProxy, reason: Reason
) -> None:
    proxy.behave = failing(reason)
    result = await ask(world)
    assert result.verdict == VERDICT_NOT_RUN
    assert text(result).startswith("web_fetch failed: unavailable. ")


@pytest.mark.parametrize("code", ["", "grant_expired", "grant_revoked", "grant_invalid"])
async def test_a_void_grant_is_replaced(world: World, proxy: ScriptedProxy, code: str) -> None:
    async def once() -> FetchResponse:
        proxy.behave = proxy.answer
        return await failing(Reason.PERMISSION_DENIED, code)()

    proxy.behave = once
    assert text(await ask(world)) == "hello"
    assert [grant for grant, _, _ in proxy.calls] == ["grant 1", "grant 2"]


async def test_a_call_that_is_stopped_is_cancelled(world: World, proxy: ScriptedProxy) -> None:
    proxy.behave = asyncio.Event().wait  # type: ignore[assignment]
    asked = ask(world)
    await eventually(lambda: len(proxy.calls) == 1)
    await world.executor.cancel(SESSION, 1, ["c1"])
    assert (await asked).verdict == VERDICT_CANCELLED


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("web_fetch", {"url": 7}),
        ("web_fetch", {"query": "x"}),
        ("web_fetch", {"url": URL, "method": "POST"}),
        ("web_search", {"query": None}),
        ("web_search", {"query": "\ud800"}),
    ],
)
async def test_an_input_that_is_none_is_told_so(
    world: World, proxy: ScriptedProxy, tool: str, given: Any
) -> None:
    result = await ask(world, tool=tool, **given)
    assert result.verdict == VERDICT_NOT_RUN
    assert "invalid_tool_input" in text(result)
    assert not proxy.calls


async def test_hands_without_a_vault_proxy_say_so(world: World) -> None:
    result = await ask(world)
    assert result.verdict == VERDICT_NOT_RUN
    assert "vault proxy" in text(result)
