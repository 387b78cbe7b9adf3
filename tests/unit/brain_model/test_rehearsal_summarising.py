"""The rehearsal model's summaries."""

from __future__ import annotations

from typing import Any

from services.brain.harness.compaction import HEADING, PROMPT
from services.brain.model.rehearsal.summarising import is_for_summary, summary


def body(*said: str) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in said]
    return {
        "messages": [
            {"role": "user", "content": blocks[:1]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            {"role": "user", "content": blocks[1:]},
        ]
    }


def test_order_to_summarise_is_known_and_answered_with_what_the_user_said() -> None:
    asked = body(f"{HEADING}the first summary", "count the rows", PROMPT)
    assert is_for_summary(asked)
    told = summary(asked)
    assert "- the first summary\n- count the rows" in told.text
    assert not told.calls
    assert "This is no message" not in told.text


def test_other_messages_are_no_order_to_summarise() -> None:
    assert not is_for_summary(body("Hi", "please summarise"))
    assert not is_for_summary({"messages": "odd"})
    assert not is_for_summary({"messages": [{"role": "user", "content": "Hi"}]})
