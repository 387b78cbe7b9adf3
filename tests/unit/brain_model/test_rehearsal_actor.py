from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from drover.hands.v1.mounts_pb2 import FoundSkill
from services.brain.domain.briefing import found
from services.brain.model.rehearsal.actor import answer
from services.brain.model.rehearsal.analysis import REPORT
from services.brain.model.rehearsal.conversation import InvalidRequestError, read_conversation
from services.brain.model.rehearsal.script import NAME, NOTICE, Answer, Call

TOOLS = ("bash", "read", "write", "edit", "glob", "grep")
CSV = "region,units\nNorth,3\nSouth,10\nNorth,4\nEast,1\n"

Tool = Callable[[Call], tuple[str, bool]]


def _ok(call: Call) -> tuple[str, bool]:
    return f"result of {call.name}", False


def _answer(messages: list[dict[str, Any]], tools: Iterable[str] = TOOLS) -> Answer:
    body = {"messages": messages, "tools": [{"name": name} for name in tools]}
    return answer(read_conversation(body))


def _turn(
    content: str | list[dict[str, Any]],
    tool: Tool = _ok,
    before: Iterable[dict[str, Any]] = (),
) -> tuple[list[tuple[Call, ...]], str]:
    """Play a turn to its end: the calls of each answer, and the last text."""
    messages = [*before, {"role": "user", "content": content}]
    steps: list[tuple[Call, ...]] = []
    for _ in range(20):
        said = _answer(messages)
        if not said.calls:
            return steps, said.text
        assert said.text.startswith(NAME)
        steps.append(said.calls)
        messages += _taken(len(steps), said.calls, tool)
    raise AssertionError("the turn does not end")


def _taken(step: int, calls: tuple[Call, ...], tool: Tool) -> list[dict[str, Any]]:
    uses, results = [], []
    for at, call in enumerate(calls):
        id_ = f"toolu_{step}_{at}"
        text, is_error = tool(call)
        uses.append({"type": "tool_use", "id": id_, "name": call.name, "input": {**call.input}})
        results.append(
            {
                "type": "tool_result",
                "tool_use_id": id_,
                "content": [{"type": "text", "text": text}],
                "is_error": is_error,
            }
        )
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


def _inputs(steps: list[tuple[Call, ...]], name: str) -> list[Mapping[str, str]]:
    return [call.input for calls in steps for call in calls if call.name == name]


def test_commands_run_one_after_the_other_and_their_output_is_the_answer() -> None:
    outputs = {"echo one": ("one", False), "false": ("exit code 1", True)}
    steps, said = _turn("run `echo one` and `false`", lambda call: outputs[call.input["command"]])
    assert [[call.input["command"] for call in calls] for calls in steps] == [
        ["echo one"],
        ["false"],
    ]
    assert "Running `echo one` gave:\n```\none\n```" in said
    assert "Running `false` failed:\n```\nexit code 1\n```" in said


def test_commands_run_in_parallel_when_asked_for() -> None:
    steps, _ = _turn("run `a` and `b` in parallel")
    assert [len(calls) for calls in steps] == [2]


def test_every_last_word_says_what_this_is() -> None:
    for message in ("hello", "run `true`", f"sum this up:\n{CSV}"):
        assert _turn(message)[1].endswith(NOTICE)


def test_a_table_is_written_looked_at_computed_reported_and_read_back() -> None:
    written: dict[str, str] = {}

    def tool(call: Call) -> tuple[str, bool]:
        if call.name == "write":
            written[call.input["file_path"]] = call.input["content"]
            return "wrote", False
        if call.name == "read":
            return written[call.input["file_path"]], False
        if "python3" in call.input["command"]:
            return "rows: 4\nunits: sum 18\nunits by region: South 10 (56 %), North 7 (39 %)", False
        return "4 lines", False

    steps, said = _turn(f"look at herd.csv\n{CSV}", tool)
    assert [[call.name for call in calls] for calls in steps] == [
        ["write"],
        ["bash", "bash"],
        ["bash"],
        ["write"],
        ["read"],
    ]
    assert written["/workspace/herd.csv"] == CSV
    assert "- units by region: South 10 (56 %)" in written[REPORT]
    assert "Most units by region: South 10 (56 %)." in said
    assert REPORT in said


def test_a_table_in_an_attached_document_is_worked_through() -> None:
    document = {
        "type": "document",
        "title": "herd.csv",
        "source": {"type": "text", "media_type": "text/plain", "data": CSV},
    }
    steps, _ = _turn([{"type": "text", "text": "what is in it?"}, document])
    assert steps[0][0].input == {"file_path": "/workspace/herd.csv", "content": CSV}


def test_the_report_goes_where_the_message_says() -> None:
    steps, said = _turn(f"put the report into `/workspace/out/sums.md`\n{CSV}")
    assert _inputs(steps, "read") == [{"file_path": "/workspace/out/sums.md"}]
    assert "/workspace/out/sums.md" in said


def test_a_report_that_cannot_be_written_falls_back_to_the_workspace() -> None:
    def tool(call: Call) -> tuple[str, bool]:
        refused = call.input.get("file_path") == REPORT and call.name == "write"
        return ("Permission denied", True) if refused else ("fine", False)

    steps, said = _turn(CSV, tool)
    assert _inputs(steps, "read") == [{"file_path": "/workspace/report.md"}]
    assert "/workspace/report.md" in said


def test_without_python_awk_computes() -> None:
    def tool(call: Call) -> tuple[str, bool]:
        missing = call.input.get("command", "").startswith("python3")
        return ("bash: python3: command not found", True) if missing else ("rows: 4", False)

    steps, _ = _turn(CSV, tool)
    commands = [given["command"].split()[0] for given in _inputs(steps, "bash")]
    assert commands == ["head", "wc", "python3", "awk"]


@pytest.mark.parametrize("failing", ["write", "bash", "read"])
def test_a_failing_tool_is_reported_as_it_failed(failing: str) -> None:
    _, said = _turn(CSV, lambda call: ("it broke", call.name == failing))
    assert "it broke" in said
    assert "could not" in said or "failed" in said


def test_commands_beside_a_table_run_before_the_report_and_stand_in_it() -> None:
    asked = (
        "group by `region`, then run `ls -l /workspace` and `wc -c /mnt/session/outputs/report.md`"
    )
    steps, said = _turn(f"{asked}\n{CSV}", lambda call: (f"did {call.name}", False))
    order = [call.input.get("command", call.name) for calls in steps[3:] for call in calls]
    assert order == [
        "ls -l /workspace",
        "write",
        "read",
        "wc -c /mnt/session/outputs/report.md",
    ]
    assert "Running `ls -l /workspace` gave" in _inputs(steps, "write")[-1]["content"]
    assert "Running `wc -c /mnt/session/outputs/report.md` gave" in said


def test_only_the_newest_message_counts() -> None:
    before: list[dict[str, Any]] = [{"role": "user", "content": "run `old`"}]
    before += _taken(9, (Call("bash", {"command": "old"}),), _ok)
    before += [{"role": "assistant", "content": "done"}]
    steps, _ = _turn("run `new`", before=before)
    assert _inputs(steps, "bash") == [{"command": "new"}]


def test_a_message_sent_along_with_results_of_an_interrupted_turn_starts_anew() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "run `old` and `older`"}]
    messages += _taken(1, (Call("bash", {"command": "old"}),), _ok)
    messages[-1]["content"].append({"type": "text", "text": "run `new`"})
    assert _answer(messages).calls == (Call("bash", {"command": "new"}),)


def test_the_same_messages_give_the_same_answer() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": CSV}]
    assert _answer(messages) == _answer(messages)


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    said = _answer([{"role": "user", "content": "run `true`"}], tools=["read"])
    assert said.calls == ()
    assert "`bash`" in said.text
    assert said.text.endswith(NOTICE)


def test_tool_choice_none_offers_nothing() -> None:
    body = {
        "messages": [{"role": "user", "content": "run `true`"}],
        "tools": [{"name": "bash"}],
        "tool_choice": {"type": "none"},
    }
    assert answer(read_conversation(body)).calls == ()


def test_a_call_without_a_result_counts_as_failed() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "run `true`"}]
    messages += _taken(1, (Call("bash", {"command": "true"}),), _ok)[:1]
    assert "failed:\n```\nthe call has no result" in _answer(messages).text


def test_calls_of_another_hand_end_the_turn_honestly() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "run `true`"}]
    messages += _taken(1, (Call("grep", {"pattern": "x"}),), _ok)
    said = _answer(messages)
    assert said.calls == ()
    assert "not ones I would have made" in said.text


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ],
)
def test_a_malformed_request_is_refused_by_path(body: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError, match=path):
        read_conversation(body)


@pytest.mark.parametrize(
    "part",
    [
        "write ",
        "write a to ",
        "create x.md with y ",
        "```x\n",
        "```\n",
        "`a` ",
        "read ",
        "a,b ",
        "/a.",
        '" ',
    ],
)
@pytest.mark.timeout(20)
def test_a_hostile_message_is_answered_in_time_linear_to_its_length(part: str) -> None:
    _answer([{"role": "user", "content": part * (300_000 // len(part))}])


def test_what_is_told_beside_a_result_is_not_taken_for_the_tools_output() -> None:
    told = found([FoundSkill(name="lint", description="Checks.", path="/workspace/x/SKILL.md")])
    asked = {"role": "user", "content": "run `echo one`"}
    uses, results = _taken(1, _answer([asked]).calls, lambda _: ("one", False))
    results["content"][0]["content"].append({"type": "text", "text": told})
    said = _answer([asked, uses, results]).text
    assert "one" in said
    assert "lint" not in said
