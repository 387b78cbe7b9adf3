"""The Messages-API double: a scripted model for end-to-end tests, and a 0 ms model for the bench.

In a test::

    with running() as api:
        api.on(says("two tools"), tools(ToolUse("bash", {"command": "true"})), text("done"))
        ...  # point ANTHROPIC_BASE_URL at api.base_url
        assert api.requests[0].body["model"] == "claude-test"

It runs in a thread of its own, so that tests may drive the platform with a blocking client.
For the bench: `python -m tests.doubles.messages_api --port 0 --mode one_tool`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count

import uvloop

from tests.doubles.messages_reply import (
    AnyBlock,
    Block,
    Gate,
    Reply,
    Text,
    Thinking,
    ToolUse,
    Usage,
    error,
    max_tokens,
    message,
    raw,
    refusal,
    stream_error,
    text,
    thinking,
    tools,
)
from tests.doubles.messages_wire import Answerer, MessagesProtocol, Request
from tests.doubles.prompt_cache import PromptCache

__all__ = [
    "AnyBlock",
    "Block",
    "Gate",
    "MessagesApi",
    "Reply",
    "Request",
    "Text",
    "Thinking",
    "ToolUse",
    "Usage",
    "anything",
    "echo",
    "error",
    "max_tokens",
    "message",
    "one_tool",
    "raw",
    "refusal",
    "running",
    "says",
    "serving",
    "stream_error",
    "text",
    "thinking",
    "tools",
]

_OK = 200

Matcher = Callable[[Request], bool]


def anything(_request: Request) -> bool:
    """Match every request."""
    return True


def says(part: str) -> Matcher:
    """Match requests whose newest user message contains `part`."""
    return lambda request: part in request.newest_user_text


def unscripted(_request: Request) -> Reply:
    """The answer when the script has none: an error no client retries, so that a test ends soon."""
    return error(400, "the double has no reply for this request")


def echo(request: Request) -> Reply:
    """One line of text."""
    del request
    return text("ok")


def one_tool(request: Request) -> Reply:
    """`bash` with the command `true`, and a line of text once its result is there.

    Reads the bytes only: quotes inside JSON strings are escaped, so the marks are unambiguous.
    """
    if request.raw.rfind(b'"tool_result"') > request.raw.rfind(b'"assistant"'):
        return text("done")
    return tools(ToolUse("bash", {"command": "true"}))


def bench(request: Request) -> Reply:
    """One tool for a session that asks to `use a tool`, else one line of text."""
    return one_tool(request) if b"use a tool" in request.raw else text("ok")


class MessagesApi:
    """The script and the record of one double. Its methods may be called from any thread."""

    def __init__(
        self,
        default: Answerer = unscripted,
        *,
        record: bool = True,
        cache: PromptCache | None = None,
    ) -> None:
        self.base_url = ""
        self.requests: list[Request] = []
        self.unmatched: list[Request] = []
        self.connections = 0
        self._default = default
        self._record = record
        # With a cache, replies tell of the tokens that it has found, whatever the script says.
        self.cache = cache
        self._rules: list[tuple[Matcher, list[Reply]]] = []
        self._changed = threading.Condition()
        self._ids = count(1)

    def script(self, *replies: Reply) -> None:
        """Answer the next requests, whatever they are, with these in turn."""
        self.on(anything, *replies)

    def on(self, matcher: Matcher, *replies: Reply) -> None:
        """Answer the next requests that match with these in turn; earlier rules come first."""
        with self._changed:
            self._rules.append((matcher, list(replies)))

    def default(self, answer: Answerer) -> None:
        """Answer requests that no rule matches with `answer(request)`."""
        self._default = answer

    def reset(self) -> None:
        """Forget the script and the record."""
        with self._changed:
            self._rules.clear()
            self.requests.clear()
            self.unmatched.clear()
            self._default = unscripted
            self.cache = None

    @property
    def pending(self) -> int:
        """How many scripted replies have not been used."""
        with self._changed:
            return sum(len(replies) for _, replies in self._rules)

    def wait_requests(self, number: int, deadline: float = 30.0) -> list[Request]:
        """Block until so many requests have come; `deadline` in seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= number, deadline):
                msg = f"{len(self.requests)} of {number} requests came within {deadline} s"
                raise TimeoutError(msg)
            return list(self.requests)

    async def saw(self, number: int, deadline: float = 30.0) -> list[Request]:
        """Wait until so many requests have come; `deadline` in seconds."""
        return await asyncio.to_thread(self.wait_requests, number, deadline)

    async def eventually(self, condition: Callable[[], bool], deadline: float = 30.0) -> None:
        """Wait until `condition` holds; asked again when a request comes, ends or breaks off."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(condition, deadline)

        if not await asyncio.to_thread(wait):
            msg = f"the condition did not come to hold within {deadline} s"
            raise TimeoutError(msg)

    def connected(self) -> None:
        """The server's side: count a new connection."""
        self.connections += 1

    def changed(self) -> None:
        """The server's side: a request ended or broke off."""
        with self._changed:
            self._changed.notify_all()

    def answer(self, request: Request) -> Reply:
        """The server's side: record `request`, choose its reply and count its tokens."""
        reply = self._answer(request)
        if self.cache is None or reply.status != _OK:
            return reply
        found = self.cache.send(request.raw)
        used = Usage(
            input_tokens=found.input_tokens,
            cache_creation_input_tokens=found.cache_creation,
            cache_read_input_tokens=found.cache_read,
        )
        return reply.counted(used)

    def _answer(self, request: Request) -> Reply:
        if not self._record:
            return self._default(request)
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            for matcher, replies in self._rules:
                if replies and matcher(request):
                    return replies.pop(0)
            if self._default is unscripted:
                self.unmatched.append(request)
        return self._default(request)

    def new_id(self, prefix: str) -> str:
        """A unique id of the API's shape: the same script gives the same ids."""
        return f"{prefix}_{next(self._ids):024d}"


@asynccontextmanager
async def serving(api: MessagesApi, port: int = 0) -> AsyncIterator[MessagesApi]:
    """Serve `api` on loopback in the running loop; `api.base_url` says where."""
    loop = asyncio.get_running_loop()
    connections: set[MessagesProtocol] = set()
    server = await loop.create_server(lambda: MessagesProtocol(api, connections), "127.0.0.1", port)
    api.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        for connection in list(connections):
            connection.close()
        await server.wait_closed()


@contextmanager
def running(api: MessagesApi | None = None, port: int = 0) -> Iterator[MessagesApi]:
    """Serve a double from a thread of its own."""
    served = api or MessagesApi()
    ready = threading.Event()
    stopped = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with serving(served, port):
            ready.set()
            await stopped.wait()

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=serve, name="messages-api-double")
    thread.start()
    try:
        if not ready.wait(10):
            msg = "the Messages-API double did not start"
            raise RuntimeError(msg)
        yield served
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stopped.set)
        thread.join()


async def _serve_bench(port: int, mode: str, first_token_delay: float) -> None:
    answers: dict[str, Answerer] = {"bench": bench, "echo": echo, "one_tool": one_tool}
    chosen = answers[mode]

    def answer(request: Request) -> Reply:
        reply = chosen(request)
        return reply.delayed(first_token_delay) if first_token_delay else reply

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving(MessagesApi(answer, record=False), port) as api:
        sys.stdout.write(f"ready {api.base_url}\n")
        sys.stdout.flush()
        await stopped.wait()


def main() -> None:
    """Serve a fixed behaviour until told to stop; prints one `ready <url>` line."""
    parser = argparse.ArgumentParser(description="Messages-API double")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--mode", choices=["bench", "echo", "one_tool"], default="echo")
    parser.add_argument("--first-token-delay", type=float, default=0.0, help="seconds")
    arguments = parser.parse_args()
    uvloop.run(_serve_bench(arguments.port, arguments.mode, arguments.first_token_delay))


if __name__ == "__main__":
    main()
