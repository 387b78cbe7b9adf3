"""One session's connection to one MCP server: calls side by side, each with its own fate."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import mcp_types as types
from mcp import Client, MCPError
from pydantic import TypeAdapter, ValidationError

from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault, McpError, exchanging
from services.vault_proxy.mcp.greeting import meaning

if TYPE_CHECKING:
    from services.vault_proxy.mcp.greeting import Greeter
    from services.vault_proxy.mcp.limits import Limits

_T = TypeVar("_T")
_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_ROUND: Final = (0.05, 0.1, 0.2, 0.25)


class Connection:
    """A connection. `run` is its life, in a task of its own; all else may be called from any task.

    A failure of one call leaves the others alone, as far as the transport has one HTTP request per
    call. A connection that has `ended` is of no more use.
    """

    def __init__(self, greeter: Greeter, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        self._greeter = greeter
        self._limits = limits
        self._client: Client | None = None
        self._one_stream = False
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closing = asyncio.Event()
        self.ended: asyncio.Future[None] = loop.create_future()

    @property
    def protocol_version(self) -> str:
        """The version that was agreed on."""
        return self._ready().protocol_version

    @property
    def is_open(self) -> bool:
        """Whether calls can be made without any waiting."""
        return self._client is not None and not self.ended.done()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Opens the connection and keeps it until `close`, or until it breaks. Raises nothing."""
        self._tasks = tasks
        greeting = Exchange()
        try:
            with exchanging(greeting):
                await self._serve(greeting)
        except Exception as error:  # noqa: BLE001  # the library raises of every kind, in groups
            if not self._opened.done():
                self._opened.set_exception(McpError(meaning(greeting, error)))
        finally:
            if not self._opened.done():
                failure = Failure(Fault.UNREACHABLE, "the connection was closed")
                self._opened.set_exception(McpError(failure))
            self._opened.exception()  # somebody has looked at it
            if not self.ended.done():
                self.ended.set_result(None)

    async def opened(self) -> None:
        """Waits until calls can be made. Raises `McpError`."""
        await asyncio.shield(self._opened)

    def close(self) -> None:
        """Ends the connection, and the calls on it."""
        self._closing.set()

    async def tools(self, exchange: Exchange) -> list[types.Tool]:
        """All pages of the server's tools. Raises `McpError`."""
        session = self._ready().session
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            params = types.PaginatedRequestParams(cursor=cursor)
            exchange.requests = 0  # pages are counted here
            page = await self._answer(exchange, session.list_tools(params=params))
            found += page.tools
            if len(found) > self._limits.tools:
                message = f"the server offers more than {self._limits.tools:,} tools"
                raise McpError(Failure(Fault.UNUSABLE, message, "tools/list"))
            cursor = page.next_cursor
            if cursor is None:
                return found
        message = f"the server's list of tools has more than {self._limits.pages} pages"
        raise McpError(Failure(Fault.UNUSABLE, message, "tools/list"))

    async def call(
        self, exchange: Exchange, name: str, arguments: Mapping[str, Any]
    ) -> types.CallToolResult:
        """Calls a tool. A call that the server wants to have sent again is sent again.

        Raises `McpError`, and `MCPError` for an error that is the server's own answer.
        """
        state: str | None = None
        for turn in range(self._limits.rounds + 1):
            try:
                result = await self._answer(exchange, self._sent(exchange, name, arguments, state))
            except McpError as error:
                if not turn:
                    raise
                # What was done in the rounds before, nobody knows: the call has begun.
                raise McpError(replace(error.failure, fault=Fault.BROKEN)) from error
            if isinstance(result, types.CallToolResult):
                return result
            if result.input_requests:
                return _failed("The tool asks its user for input, which cannot be given here.")
            state = result.request_state
            await asyncio.sleep(_ROUND[min(turn, len(_ROUND) - 1)])
        return _failed(
            f"The tool wanted the call to be sent again more than {self._limits.rounds} times."
        )

    async def _sent(
        self, exchange: Exchange, name: str, arguments: Mapping[str, Any], state: str | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """One round. The server's own schema of results is not enforced: it proves nothing."""
        session = self._ready().session
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=name, arguments=dict(arguments), request_state=state
            )
        )
        try:
            return await session.send_request(request, _RESULT)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
        # The tool's schema, by which arguments go into headers too, is not known here: nothing
        # was done, and with the list it can be (2026-07-28, streamable HTTP).
        with exchanging(Exchange()) as listing:
            await self.tools(listing)
        with exchanging(exchange):
            return await session.send_request(request, _RESULT)

    async def _answer(self, exchange: Exchange, asking: Coroutine[Any, Any, _T]) -> _T:
        """What a request comes to, or why it comes to nothing."""
        with exchanging(exchange):
            task = self._tasks.create_task(_outcome(asking))
        watched: set[asyncio.Future[Any]] = {task, self.ended}
        if self._one_stream:  # there the library leaves a request that failed without an answer
            watched.add(exchange.failed)
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise McpError(exchange.failure or _broken(exchange))
        outcome = task.result()
        if not isinstance(outcome, Exception):
            return outcome
        if exchange.failure is not None:
            raise McpError(exchange.failure) from outcome
        if isinstance(outcome, MCPError) and not self._unheard(outcome, exchange):
            raise outcome
        if isinstance(outcome, ValidationError | MCPError):
            raise McpError(_broken(exchange, outcome)) from outcome
        raise McpError(_broken(exchange)) from outcome

    def _unheard(self, error: MCPError, exchange: Exchange) -> bool:
        """Whether an error is the library's word for an answer that never came."""
        if error.code == types.PARSE_ERROR:
            return True
        if error.code != types.CONNECTION_CLOSED:
            return False
        return self._one_stream or not exchange.answered

    def _ready(self) -> Client:
        if self._client is None:
            raise McpError(Failure(Fault.UNREACHABLE, "the connection is not open"))
        return self._client

    async def _serve(self, greeting: Exchange) -> None:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._limits.greet_seconds):
                self._client, self._one_stream = await self._greeter.greeted(stack, greeting)
            self._opened.set_result(None)
            await self._closing.wait()
            async with asyncio.timeout(self._limits.close_seconds):
                await stack.aclose()


async def _outcome(asking: Coroutine[Any, Any, _T]) -> _T | Exception:
    """What a request answers or raises: a task that fails would take the group with it."""
    try:
        return await asking
    except Exception as error:  # noqa: BLE001
        return error


def _broken(exchange: Exchange, error: Exception | None = None) -> Failure:
    """What it means that no answer came, or none that can be read."""
    if isinstance(error, ValidationError) or (
        isinstance(error, MCPError) and error.code == types.PARSE_ERROR and exchange.answered
    ):
        return Failure(Fault.UNUSABLE, "the server's answer does not keep to MCP")
    if not exchange.sent:
        return Failure(Fault.UNREACHABLE, "the connection to the server broke")
    return Failure(Fault.BROKEN, "the connection to the server ended before its answer")


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
