"""What the Messages API demands of a conversation that it is sent."""

from __future__ import annotations

import json
from itertools import pairwise


def check_history(request: dict[str, object]) -> None:
    """Asserts that the API takes the request's conversation."""
    messages = request["messages"]
    assert isinstance(messages, list)
    # A system message stands behind a user's, with an assistant's or nothing behind it.
    roles = [message["role"] for message in messages]
    for role, following in pairwise([*roles, ""]):
        assert following != "system" or role == "user"
        assert role != "system" or following in ("assistant", "")
    messages = [message for message in messages if message["role"] != "system"]
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
