"""The double of the prompt cache: what it finds again, and what it does not."""

from __future__ import annotations

import json
from typing import Any

from tests.doubles.prompt_cache import PromptCache

MARK = {"cache_control": {"type": "ephemeral"}}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def request(*blocks: dict[str, Any], **more: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": list(blocks)}]}
    return json.dumps(more | body).encode()


def test_prefix_is_read_up_to_the_breakpoint_of_the_request_before() -> None:
    cache = PromptCache()
    first = cache.send(request(text("a"), text("b", **MARK)))
    assert (first.cache_read, first.shared_blocks, first.input_tokens) == (0, 0, 0)
    second = cache.send(request(text("a"), text("b"), text("c", **MARK)))
    assert (second.cache_read, second.shared_blocks) == (first.total, 2)
    assert second.cache_creation > 0


def test_what_had_no_breakpoint_is_not_kept() -> None:
    cache = PromptCache()
    assert cache.send(request(text("a"), text("b"))).cache_creation == 0
    assert cache.send(request(text("a"), text("b", **MARK))).cache_read == 0


def test_breakpoint_looks_back_over_twenty_blocks_and_no_further() -> None:
    for more, found in ((19, True), (20, False)):
        cache = PromptCache()
        cache.send(request(text("a", **MARK)))
        blocks = [text(str(number)) for number in range(more)]
        blocks[-1] |= MARK
        assert bool(cache.send(request(text("a"), *blocks)).cache_read) == found


def test_other_tools_system_model_or_settings_are_another_prefix() -> None:
    plain = request(text("a", **MARK))
    for other in (
        request(text("a", **MARK), system=[text("s")]),
        request(text("a", **MARK), tools=[{"name": "t"}]),
        request(text("a", **MARK), tool_choice={"type": "none"}),
        request(text("a", **MARK), thinking={"type": "adaptive"}),
        plain.replace(b'"m"', b'"n"'),
    ):
        cache = PromptCache()
        cache.send(plain)
        assert cache.send(other).cache_read == 0


def test_settings_leave_tools_and_system_cached() -> None:
    cache = PromptCache()
    system = [text("s", **MARK)]
    cache.send(request(text("a"), system=system))
    found = cache.send(request(text("a"), system=system, tool_choice={"type": "none"}))
    assert found.shared_blocks == 1


def test_order_of_keys_and_spelling_of_numbers_count() -> None:
    call = '{"type":"tool_use","id":"t","name":"n","input":%s}'
    body = '{"model":"m","messages":[{"role":"assistant","content":[%s,%s]}]}'
    end = json.dumps(text("e", **MARK))
    for other in ('{"b":1,"a":2}', '{"a":2,"b":1.0}'):
        cache = PromptCache()
        cache.send((body % (call % '{"a":2,"b":1}', end)).encode())
        assert cache.send((body % (call % other, end)).encode()).cache_read == 0
