"""A model that makes the calls that a message plans, by the history alone: asked again, it says
the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvloop

from tests.doubles.messages_api import MessagesApi, MessagesProtocol, Reply, Request
from tests.doubles.messages_reply import ToolUse, text, tools

PLAN = "plan "
PORT = 8000


def planned(request: Request) -> Reply:
    """The next of the newest plan's rounds, each a list of a tool's name and input."""
    messages: list[Any] = request.body["messages"]
    for back, message in enumerate(reversed(messages)):
        for block in message["content"] if isinstance(message["content"], list) else ():
            said = block.get("text", "") if block["type"] == "text" else ""
            if message["role"] == "user" and said.startswith(PLAN):
                name, rounds = json.loads(said.removeprefix(PLAN))
                if (done := back // 2) < len(rounds):
                    return tools(*(ToolUse(tool, given) for tool, given in rounds[done]))
                return text(f"done {name}")
    return text("nothing is planned")


async def serve() -> None:
    """Serves until it is killed."""
    api = MessagesApi(planned, record=False)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: MessagesProtocol(api, set()), "0.0.0.0", PORT)  # noqa: S104
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
