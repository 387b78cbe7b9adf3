from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from cli.terminal import plain, plain_json
from cli.transcript import Transcript, describe_input, shortened
from tests.unit.cli import wire


class Page:
    """A transcript and what it printed."""

    def __init__(self, *, every: bool = False) -> None:
        self._file = io.StringIO()
        self.transcript = Transcript(Console(file=self._file, width=100), every=every)

    def after(self, *events: wire.Event) -> str:
        for event in events:
            self.transcript.show(event)
        return self._file.getvalue()


def test_previewed_text_is_printed_once_and_completed_by_its_event() -> None:
    final = wire.event("agent.message", id="m", content=wire.text("Hello world"))
    printed = Page().after(wire.start("m"), wire.delta("m", "Hello "), final, wire.idle())
    assert printed == "agent\nHello world\nidle  end_turn\n"


def test_message_without_a_preview_is_printed_whole() -> None:
    printed = Page().after(wire.event("agent.message", content=wire.text("Hello", "world")))
    assert printed == "agent\nHello\nworld\n"


def test_preview_that_the_final_text_contradicts_is_followed_by_the_truth() -> None:
    final = wire.event("agent.message", id="m", content=wire.text("Right"))
    assert Page().after(wire.start("m"), wire.delta("m", "Wro"), final).endswith("Wro\nRight\n")


def test_preview_that_never_ends_does_not_run_into_the_next_line() -> None:
    printed = Page().after(wire.start("m"), wire.delta("m", "Hel"), wire.idle())
    assert printed == "agent\nHel\nidle  end_turn\n"


def test_text_is_printed_once_although_its_calls_were_judged_before_its_event_came() -> None:
    final = wire.event("agent.message", id="m", content=wire.text("Hello world"))
    judging = wire.event("span.model_request_start", id="j")
    printed = Page().after(wire.start("m"), wire.delta("m", "Hello "), judging, final)
    assert printed == "agent\nHello \nagent\nworld\n"
    whole = wire.event("agent.message", id="n", content=wire.text("All of it"))
    printed = Page().after(wire.start("n"), wire.delta("n", "All of it"), judging, whole)
    assert printed == "agent\nAll of it\n"


def test_word_of_the_operator_is_shown_as_the_systems() -> None:
    said = wire.event("system.message", content=wire.text("Be formal."))
    assert Page().after(said) == "system\n  │ Be formal.\n"


def test_call_says_what_became_of_its_permission() -> None:
    call = {"name": "bash", "input": {"command": "ls"}}
    asked = wire.event("agent.tool_use", id="a", evaluated_permission="ask", **call)
    denied = wire.event("agent.tool_use", id="d", evaluated_permission="deny", **call)
    lines = Page().after(asked, denied).splitlines()
    assert lines[0] == "tool  bash  (waits for permission)"
    assert lines[2] == "tool  bash  (denied)"


def test_event_that_comes_twice_is_shown_once() -> None:
    fields = {"id": "u", "content": wire.text("hi")}
    waiting = wire.event("user.message", processed_at=None, **fields)
    assert Page().after(waiting, wire.event("user.message", **fields)) == "you\n  │ hi\n"


@pytest.mark.parametrize("kind", ["agent.tool_result", "user.tool_result"])
def test_call_and_its_result_name_the_tool(kind: str) -> None:
    call = wire.event("agent.tool_use", id="c", name="bash", input={"command": "ls"})
    result = wire.event(kind, tool_use_id="c", content=wire.text("a.txt"))
    assert Page().after(call, result) == "tool  bash\n  │ $ ls\nbash  gave\n  │ a.txt\n"


def test_failed_result_says_so() -> None:
    result = wire.event("agent.tool_result", tool_use_id="?", content=None, is_error=True)
    assert Page().after(result) == "tool  failed\n  │ (nothing)\n"


def test_progress_is_shown_only_when_every_event_is_wanted() -> None:
    events = (wire.event("session.status_running"), wire.event("span.model_request_start"))
    assert Page().after(*events) == ""
    assert Page(every=True).after(*events) == "session.status_running\nspan.model_request_start\n"


def test_unknown_event_of_a_newer_platform_is_named_when_every_event_is_wanted() -> None:
    assert Page(every=True).after(wire.event("agent.telepathy")) == "agent.telepathy\n"


def test_error_is_shown_with_what_the_platform_does_about_it() -> None:
    error = {
        "type": "model_overloaded_error",
        "message": "overloaded",
        "retry_status": {"type": "retrying"},
    }
    printed = Page().after(wire.event("session.error", error=error))
    assert printed == "error  model_overloaded_error: overloaded (retrying)\n"


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x1b]0;title\x07", "a\rb", "\x9b31m", "\x08"])
def test_output_of_a_tool_cannot_command_the_terminal(hostile: str) -> None:
    result = wire.event("agent.tool_result", tool_use_id="?", content=wire.text(hostile))
    printed = Page().after(result)
    assert not set(printed) & set(hostile) & {"\x1b", "\x07", "\r", "\x9b", "\x08"}


@pytest.mark.parametrize("text", ["[red]a[/red] [/]", "a:100:b :bug:", "http://host/:x: 'q' 12"])
def test_text_is_shown_as_it_was_written(text: str) -> None:
    message = wire.event("agent.message", content=wire.text(text))
    result = wire.event("agent.tool_result", tool_use_id="?", content=wire.text(text))
    assert Page().after(message, result) == f"agent\n{text}\ntool  gave\n  │ {text}\n"


def test_preview_is_shown_as_it_was_written() -> None:
    printed = Page().after(wire.start("m"), wire.delta("m", ":bug: [b]"), wire.idle())
    assert printed == "agent\n:bug: [b]\nidle  end_turn\n"


def test_json_says_the_same_without_raw_control_characters() -> None:
    text = json.dumps({"a": "\x7f\x9b31m\x1b[0mü"}, ensure_ascii=False)
    assert not set(plain_json(text)) & set("\x7f\x9b\x1b")
    assert json.loads(plain_json(text)) == json.loads(text)


def test_plain_text_keeps_its_lines_and_tabs() -> None:
    assert plain("a\tb\nc") == "a\tb\nc"


def test_middle_of_a_long_output_is_left_out() -> None:
    lines = shortened("\n".join(map(str, range(100))))
    assert lines[0] == "0"
    assert lines[-1] == "99"
    assert "… 84 more lines …" in lines
    assert len(lines) == 17
    assert shortened("a\nb") == ["a", "b"]


def test_input_of_a_tool_reads_like_what_it_does() -> None:
    assert describe_input("bash", {"command": "ls -l"}) == "$ ls -l"
    assert describe_input("read", {"file_path": "/a", "limit": 3}) == "file_path: /a\nlimit: 3"
    assert describe_input("write", {"content": "a\nb"}) == "content:\na\nb"


def test_summary_of_the_conversation_shows_as_one_line() -> None:
    printed = Page().after(wire.event("agent.thread_context_compacted"))
    assert printed == "the conversation so far was summarised\n"


@pytest.mark.parametrize("permission", ["allow", "ask"])
def test_a_call_that_waits_for_a_worker_says_so(permission: str) -> None:
    call = wire.event(
        "agent.tool_use", id="call", name="bash", input={}, evaluated_permission=permission
    )
    allowed = wire.event("user.tool_confirmation", tool_use_id="call", result="allow")
    asked = [allowed] if permission == "ask" else []
    printed = Page().after(call, *asked, wire.idle("requires_action", event_ids=["call"]))
    assert printed.endswith("idle  requires_action: waits for a worker of its environment\n")


@pytest.mark.parametrize("kind", ["agent.tool_use", "agent.custom_tool_use", "agent.mcp_tool_use"])
def test_a_call_that_waits_for_somebody_else_does_not_say_that_it_is_for_a_worker(
    kind: str,
) -> None:
    mine = wire.event(
        "agent.tool_use", id="mine", name="bash", input={}, evaluated_permission="allow"
    )
    permission = {} if kind == "agent.custom_tool_use" else {"evaluated_permission": "ask"}
    other = wire.event(kind, id="other", name="x", mcp_server_name="s", input={}, **permission)
    idle = wire.idle("requires_action", event_ids=["mine", "other"])
    assert Page().after(mine, other, idle).endswith("idle  requires_action\n")
