"""The conversation's buffer: whatever is put in, cleared, cut off and dropped, it stays sound."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.brain.domain import content
from services.brain.domain.transcript import Result, Transcript

PICTURE = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%b"}}' % (
    b"A" * 90_000
)


def messages(transcript: Transcript) -> list[Any]:
    return json.loads(transcript.render(b"[", b"]"))


def result(number: int, size: int, *, picture: bool = False, is_error: bool = False) -> Result:
    blocks = [content.text_block("x" * size), *([PICTURE] if picture else [])]
    block = content.tool_result(f'tu"{number}', blocks, is_error=is_error)
    return Result(block, f"sevt_{number}")


def grown(seed: int) -> Transcript:
    """A transcript of some turns, each with a tool loop."""
    chance = random.Random(seed)  # noqa: S311
    transcript, number = Transcript(), 0
    for turn in range(chance.randint(1, 5)):
        transcript.begin_turn()
        transcript.add("user", content.text_block(f"question {turn}"))
        if chance.random() < 0.2:
            transcript.add("system", content.text_block("mind this"))
        for _ in range(chance.randint(0, 4)):
            reply, results = [], []
            if chance.random() < 0.5:
                reply.append(content.thinking("hm " * chance.randint(1, 500), "signed"))
            reply.append(content.text_block("let me see"))
            for _ in range(chance.randint(1, 3)):
                number += 1
                reply.append(content.tool_use(f'tu"{number}', "bash", '{"b":1,"a":2}'))
                results.append(
                    result(
                        number,
                        chance.choice((10, 3_000)),
                        picture=chance.random() < 0.2,
                        is_error=chance.random() < 0.3,
                    )
                )
            transcript.add("assistant", *reply)
            transcript.add("user", *results)
        if chance.random() < 0.8:
            transcript.add("assistant", content.thinking("t", "s"), content.text_block("answer"))
    return transcript


def check(transcript: Transcript) -> list[Any]:
    """Asserts that all it knows of itself is so; answers its messages."""
    sent = messages(transcript)
    called: list[str] = []
    for message in sent:
        assert message["content"]
        found = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if message["role"] != "system":
            assert found == called
            called = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
    held, starts, results, thoughts, turn, _ = transcript.dump()
    assert [json.loads(held[at + 9 : held.index(b",", at)].join((b'"', b""))) for at in starts] == [
        message["role"] for message in sent
    ]
    for start, end, _, _ in results:
        assert json.loads(held[start:end])["type"] == "tool_result"
    for start, end in thoughts:
        assert json.loads(held[start:end])["type"] == "thinking"
    assert 0 <= turn <= len(held)
    again = Transcript.load(transcript.dump())
    assert again.dump() == transcript.dump()
    assert again.weight == transcript.weight
    return sent


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.integers(0, 5), tail=st.integers(0, 20_000))
def test_transcript_stays_sound_whatever_is_cleared_cut_off_and_dropped(
    seed: int, keep: int, tail: int
) -> None:
    transcript = grown(seed)
    whole = check(transcript)
    weight, freed = transcript.weight, transcript.clearable(keep)
    transcript.clear(keep)
    cleared = check(transcript)
    assert len(cleared) == len(whole)
    assert transcript.clearable(keep) == 0
    assert weight - freed <= transcript.weight <= weight
    if cut := transcript.cut(tail):
        head = messages(transcript.before(cut))
        assert len(head) == cut
        transcript.compact(cut, content.text_block("in short"))
        short = check(transcript)
        assert short[0]["content"][0]["text"] == "in short"
        kept = cleared[cut:]
        if kept[0]["role"] == "user":
            assert short[0]["content"][1:] == kept.pop(0)["content"]
        assert short[1:] == kept
    transcript.drop_turn()
    check(transcript)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.integers(0, 3))
def test_what_the_model_has_not_answered_and_the_open_turns_thinking_are_never_cleared(
    seed: int, keep: int
) -> None:
    transcript = grown(seed)
    before = messages(transcript)
    transcript.clear(keep)
    after = messages(transcript)
    if before[-1]["role"] == "user":
        assert after[-1] == before[-1]
    last = before[-1]
    begun = last["role"] != "assistant" and last["content"][-1]["type"] == "text"
    for number in range(len(before) - 1, -1, -1):
        if before[number]["role"] == "assistant":
            assert after[number] == before[number]
            if begun:
                # The turn has no reply yet; this is the one that the API goes by.
                break
        elif number < len(before) - 1 and before[number]["content"][-1]["type"] == "text":
            break


def test_picture_weighs_what_a_picture_costs_and_not_its_bytes() -> None:
    transcript = Transcript()
    transcript.add("user", PICTURE)
    assert len(transcript) > 90_000
    assert transcript.weight < 10_000


def test_cleared_result_says_where_to_look_and_keeps_its_call_and_its_failure() -> None:
    transcript = Transcript()
    transcript.add("user", content.text_block("Hi"))
    transcript.add("assistant", content.tool_use('tu"1', "bash", "{}"))
    transcript.add("user", result(1, 5_000, is_error=True))
    transcript.add("assistant", content.text_block("Done."))
    transcript.add("user", content.text_block("More"))
    transcript.clear(0)
    (block,) = messages(transcript)[2]["content"]
    assert (block["tool_use_id"], block["is_error"]) == ('tu"1', True)
    assert '{"event_id":"sevt_1"}' in block["content"][0]["text"]


def test_small_results_are_not_worth_a_note() -> None:
    transcript = Transcript()
    transcript.add("user", content.text_block("Hi"))
    transcript.add("assistant", content.tool_use("tu1", "bash", "{}"))
    transcript.add("user", result(1, 100))
    transcript.add("assistant", content.text_block("Done."))
    before = transcript.dump()
    transcript.clear(0)
    assert transcript.dump() == before


def test_breakpoints_stand_at_the_end_and_where_the_request_before_had_its_own() -> None:
    transcript = Transcript()
    transcript.add("user", content.text_block("one"))
    transcript.add("assistant", content.text_block("two"))
    transcript.add("user", content.text_block("three"))
    transcript.add("system", content.text_block("four"))
    sent = json.loads(transcript.render(b"[", b"]", breakpoints=2))
    marked = [number for number, it in enumerate(sent) if "cache_control" in it["content"][-1]]
    assert marked == [0, 3]
    asked = json.loads(transcript.render(b"[", b"]", breakpoints=2, ask=b'{"type":"text"}'))
    # No user may speak behind the system.
    assert [message["role"] for message in asked] == ["user", "assistant", "user", "system"]
    assert asked[2]["content"][-1] == {"type": "text"}
    assert "cache_control" in asked[0]["content"][-1]
    assert "cache_control" not in json.dumps(asked[1:])


def test_head_of_a_conversation_names_pictures_only() -> None:
    transcript = Transcript()
    transcript.add("user", PICTURE, content.text_block("What is it?"))
    transcript.add("assistant", content.text_block("A cat."))
    transcript.add("user", content.text_block("And now?"))
    head = messages(transcript.before(2))
    assert [block["text"] for block in head[0]["content"]] == ["[an image]", "What is it?"]
