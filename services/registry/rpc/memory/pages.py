"""How long a page is."""

from __future__ import annotations

from typing import Final

_MOST_WITH_CONTENT: Final = 20


def page_limit(asked: int, *, with_content: bool) -> int:
    """How many items a page has: with their content there are fewer, whatever is asked for."""
    return min(asked, _MOST_WITH_CONTENT) if with_content else asked
