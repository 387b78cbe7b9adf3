"""What each figure is measured against: the same work without a platform."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from anthropic import AsyncAnthropic

SYSTEM = "You are a bench."
TOOLS: list[Any] = [
    {
        "name": "bash",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
]


def client(model_url: str) -> AsyncAnthropic:
    """The official client, pointed at the model double."""
    return AsyncAnthropic(api_key="bench", base_url=model_url, max_retries=0)


async def bare_request(
    sdk: AsyncAnthropic, messages: list[Any], *, tools: bool = False
) -> tuple[float, Any]:
    """One streaming request through the SDK; milliseconds to its end, and the message."""
    start = time.perf_counter()
    async with sdk.messages.stream(
        model="claude-opus-5-5",
        max_tokens=1024,
        system=SYSTEM,
        messages=messages,
        tools=TOOLS if tools else [],
    ) as stream:
        message = await stream.get_final_message()
    return (time.perf_counter() - start) * 1000, message


def history(turns: int) -> list[Any]:
    """The messages of a session at the start of the turn after `turns` turns."""
    messages: list[Any] = []
    for _ in range(turns):
        messages += [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        ]
    return [*messages, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]


async def one_script_loop(sdk: AsyncAnthropic) -> float:
    """Milliseconds of a one-tool loop in one script: request, bash, request."""
    start = time.perf_counter()
    messages: list[Any] = [{"role": "user", "content": "use a tool"}]
    _, message = await bare_request(sdk, messages, tools=True)
    call = next(block for block in message.content if block.type == "tool_use")
    # The script of the comparison is plain and synchronous, as such scripts are.
    done = subprocess.run(  # noqa: ASYNC221
        ["/bin/bash", "-c", call.input["command"]], capture_output=True, check=False
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": done.stdout.decode()}
    messages += [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    await bare_request(sdk, messages, tools=True)
    return (time.perf_counter() - start) * 1000
