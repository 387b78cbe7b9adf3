"""What the Messages API demands of a conversation that it is sent."""

from __future__ import annotations

import json


def check_history(request: dict[str, object]) -> None:
    """Asserts that the API takes the request's conversation."""
    messages = request["messages"]
    assert isinstance(messages, list)
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "user"
    breakpoints = json.dumps(request).count('"cache_control"')
    assert breakpoints <= 4
    called: list[str] = []
    for number, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[number % 2]
        assert message["content"]
        results = [
            block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"
        ]
        assert results == called
        kinds = [block["type"] for block in message["content"]]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result") or not results
        assert kinds[-1] != "thinking"
        called = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert all(block.get("text", "x").strip() for block in message["content"])
    assert called == []
