"""The model's stream put together (CASES F9, F17)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.event.v1.event_pb2 import Event
from services.brain.domain import events, policy
from services.brain.domain.response import Grown, ResponseAssembler, Started, ToolBegun
from tests.doubles import scripted_model as model
from tests.unit.brain import logs

PERMISSIONS = policy.evaluate(logs.every_kind_of_tool())


def assemble(raws: list[model.Raw]) -> tuple[list[Event], list[object]]:
    assembler = ResponseAssembler(events.EventFactory(logs.Numbered(), "sthr_1", "Worker"))
    signals = [signal for raw in raws if (signal := assembler.feed(raw)) is not None]
    return assembler.finish("sevt_request", PERMISSIONS), signals


def test_order_of_the_blocks_is_the_order_of_the_events() -> None:
    finished, _ = assemble(
        model.response(
            model.thinking("hm"),
            model.text("one"),
            model.text("two"),
            model.tool("bash", {}),
            model.text("three"),
        )
    )
    assert [event.WhichOneof("payload") for event in finished] == [
        "agent_thinking",
        "agent_message",
        "agent_tool_use",
        "agent_message",
        "span_model_request_end",
    ]
    assert [part.text.text for part in finished[1].agent_message.content] == ["one", "two"]


@given(st.lists(st.text(max_size=8), max_size=8), st.booleans())
def test_deltas_join_to_the_text_of_the_block(parts: list[str], leading_empty: bool) -> None:
    blocks = [[{"content_block": {"type": "text", "text": ""}}]] if leading_empty else []
    deltas = [{"delta": {"type": "text_delta", "text": part}} for part in parts]
    blocks.append([{"content_block": {"type": "text", "text": ""}}, *deltas])
    finished, signals = assemble(model.response(*blocks))
    shown = "".join(signal.text for signal in signals if isinstance(signal, Grown))
    assert {signal.index for signal in signals if isinstance(signal, Grown)} <= {0}
    texts = [part.text.text for event in finished for part in event.agent_message.content]
    assert "".join(texts) == shown
    assert len(texts) == bool(shown)


def test_surrogate_pair_that_is_split_between_deltas_becomes_whole() -> None:
    smile = "\U0001f600"
    high, low = (chr(unit) for unit in (0xD83D, 0xDE00))
    deltas = [{"delta": {"type": "text_delta", "text": text}} for text in (f"a{high}", f"{low}b")]
    finished, signals = assemble(
        model.response([{"content_block": {"type": "text", "text": ""}}, *deltas])
    )
    assert finished[0].agent_message.content[0].text.text == f"a{smile}b"
    assert [signal.text for signal in signals if isinstance(signal, Grown)] == ["a", f"{smile}b"]


def test_single_surrogates_are_replaced() -> None:
    finished, _ = assemble(model.response(model.text("x\udc00y\ud800")))
    assert finished[0].agent_message.content[0].text.text == "x\ufffdy\ufffd"


def test_signals_tell_of_thinking_and_of_tools_as_they_begin() -> None:
    _, signals = assemble(model.response(model.thinking("hm"), model.tool("bash", {})))
    assert signals == [Started("agent.thinking", "sevt_1"), ToolBegun("bash")]


def test_thinking_keeps_its_signature_and_redacted_thinking_its_data() -> None:
    finished, _ = assemble(
        model.response(
            model.thinking("deep", "signed"),
            model.block({"type": "redacted_thinking", "data": "opaque"}),
        )
    )
    assert finished[0].agent_thinking.thinking == "deep"
    assert finished[0].agent_thinking.signature == "signed"
    assert finished[1].agent_thinking.redacted_data == "opaque"


@pytest.mark.parametrize(
    "written",
    ['{"a": 1,  "b": 12345678901234567890}', '{"a": "\\u00e9"}', '{"b": 1, "a": 2}'],
)
def test_input_is_kept_byte_for_byte(written: str) -> None:
    finished, _ = assemble(model.response(model.tool("bash", written)))
    assert finished[0].agent_tool_use.input == written


@pytest.mark.parametrize(
    "written",
    [
        '{"command": "l',
        "[1]",
        '"text"',
        "nul",
        "{} {}",
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        "[" * 9999,
    ],
)
@pytest.mark.parametrize("name", ["bash", "write", "ask_user"])
def test_input_that_is_no_json_object_is_kept_aside_and_refused(name: str, written: str) -> None:
    finished, _ = assemble(model.response(model.tool(name, written)))
    use = finished[0].agent_tool_use
    assert (use.input, use.malformed_input) == ("{}", written)
    assert use.evaluated_permission == policy_deny()
    assert not use.HasField("evaluation")


def policy_deny() -> int:
    from drover.event.v1.agent_event_pb2 import EVALUATED_PERMISSION_DENY  # noqa: PLC0415

    return EVALUATED_PERMISSION_DENY


def test_call_without_input_has_an_empty_object() -> None:
    finished, _ = assemble(model.response(model.tool("bash", "")))
    assert finished[0].agent_tool_use.input == "{}"
    assert not finished[0].agent_tool_use.HasField("malformed_input")


def test_input_given_with_the_block_is_taken() -> None:
    given_at_once = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "é"}}
    finished, _ = assemble(model.response(model.block(given_at_once)))
    assert json.loads(finished[0].agent_tool_use.input) == {"command": "é"}


def test_refusal_drops_calls_and_keeps_what_was_said_of_it() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": None}
    finished, _ = assemble(
        model.response(
            model.text("No"), model.tool("bash", {}), stop_reason="refusal", stop_details=details
        )
    )
    assert [event.WhichOneof("payload") for event in finished] == [
        "agent_message",
        "span_model_request_end",
    ]
    assert json.loads(finished[-1].span_model_request_end.stop_details) == details


@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["content_block_start", "message_start", "message_delta"])}
            ),
            st.fixed_dictionaries(
                {
                    "type": st.just("content_block_start"),
                    "index": st.integers(0, 3),
                    "content_block": st.fixed_dictionaries(
                        {"type": st.sampled_from(["text", "thinking", "tool_use", "unheard"])}
                    ),
                }
            ),
            st.fixed_dictionaries(
                {
                    "type": st.just("content_block_delta"),
                    "index": st.integers(0, 3),
                    "delta": st.fixed_dictionaries(
                        {
                            "type": st.sampled_from(
                                ["text_delta", "thinking_delta", "input_json_delta", "odd_delta"]
                            ),
                            "text": st.text(max_size=3),
                            "partial_json": st.text(max_size=3),
                        }
                    ),
                }
            ),
        ),
        max_size=12,
    )
)
def test_no_stream_is_too_strange(raws: list[model.Raw]) -> None:
    finished, _ = assemble(raws)
    assert finished[-1].HasField("span_model_request_end")
