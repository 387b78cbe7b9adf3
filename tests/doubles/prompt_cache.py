"""The Messages API's prompt cache, as far as a client can tell: what of a request it had before.

A request is a row of blocks: tools, then system, then messages. The cache keeps the row up to each
`cache_control`; a request reads the longest row that it knows, sought from each of its own
breakpoints back over 20 blocks. Numbers and the order of keys count as they are written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LOOK_BACK = 20
MAX_BREAKPOINTS = 4


@dataclass(frozen=True, slots=True)
class Counted:
    """What became of a request's tokens, and how many blocks it shared with the cache."""

    input_tokens: int
    cache_read: int
    cache_creation: int
    shared_blocks: int
    blocks: int

    @property
    def total(self) -> int:
        """Tokens of the whole prompt."""
        return self.input_tokens + self.cache_read + self.cache_creation


class PromptCache:
    """Rows of blocks that were sent before, never forgotten."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def send(self, body: bytes) -> Counted:
        """Takes a request; its rows are known to the next one."""
        request = json.loads(body, parse_int=_as_written, parse_float=_as_written)
        digest = hashlib.sha256(json.dumps(request.get("model")).encode())
        sizes, rows, marks = [0], [b""], []
        for block, marked in _blocks(request):
            digest.update(block)
            sizes.append(sizes[-1] + max(1, len(block) // 4))
            rows.append(digest.digest())
            if marked:
                marks.append(len(rows) - 1)
        assert len(marks) <= MAX_BREAKPOINTS, f"{len(marks)} breakpoints"
        found = max((self._longest(rows, mark) for mark in marks), default=0)
        last = marks[-1] if marks else 0
        self._known.update(rows[mark] for mark in marks)
        return Counted(
            input_tokens=sizes[-1] - sizes[last],
            cache_read=sizes[found],
            cache_creation=sizes[last] - sizes[found],
            shared_blocks=found,
            blocks=len(rows) - 1,
        )

    def _longest(self, rows: list[bytes], mark: int) -> int:
        for at in range(mark, max(0, mark - LOOK_BACK), -1):
            if rows[at] in self._known:
                return at
        return 0


def _blocks(request: dict[str, Any]) -> Iterator[tuple[bytes, bool]]:
    for tool in request.get("tools", []):
        yield _block("tool", tool)
    system = request.get("system", [])
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield _block("system", block)
    # These settings do not touch the tools and the system prompt, but all that comes behind.
    settings = [request.get(name) for name in ("thinking", "tool_choice", "speed")]
    for number, message in enumerate(request["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            yield _block([settings, number, message["role"]], block)


def _block(place: Any, block: dict[str, Any]) -> tuple[bytes, bool]:
    marked = "cache_control" in block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    return json.dumps([place, plain]).encode(), marked


def _as_written(number: str) -> str:
    return f"number {number}"
