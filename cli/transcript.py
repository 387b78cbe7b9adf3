"""Shows a session's events to a person, as they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cli.terminal import plain, verbatim

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anthropic.types import beta
    from anthropic.types.beta import sessions as sdk
    from rich.console import Console

    from cli.follow import Event

    ToolUse = (
        sdk.BetaManagedAgentsAgentToolUseEvent
        | sdk.BetaManagedAgentsAgentMCPToolUseEvent
        | sdk.BetaManagedAgentsAgentCustomToolUseEvent
    )
    ToolResult = (
        sdk.BetaManagedAgentsAgentToolResultEvent
        | sdk.BetaManagedAgentsAgentMCPToolResultEvent
        | beta.BetaManagedAgentsUserToolResultEvent
        | sdk.BetaManagedAgentsUserCustomToolResultEvent
    )
    Usage = beta.BetaManagedAgentsSessionUsage | sdk.BetaManagedAgentsSessionUsageSnapshot

_HEAD_LINES = 12
_TAIL_LINES = 4
_MAX_WIDTH = 400


_PERMISSIONS = {"ask": "  (waits for permission)", "deny": "  (denied)"}


class Transcript:
    """Prints events one after the other. `every` shows those too that only tell of progress.

    Text that was previewed is not printed again when its event comes, only what was missing.
    """

    def __init__(self, console: Console, *, every: bool = False) -> None:
        self._console = console
        self._every = every
        self._shown: set[str] = set()
        self._previewed = ""
        self._previewing: str | None = None
        # The last preview that something else was shown behind, before its message came.
        self._left = ("", "")
        self._tools: dict[str, str] = {}
        # Calls of built-in tools that may run. Where such a one waits, it is for a worker.
        self._allowed: set[str] = set()
        self._show: Mapping[str, Callable[[Any], None]] = {
            "user.message": self._user_message,
            "system.message": self._system_message,
            "user.interrupt": lambda _: self._line("you  interrupt", "bold yellow"),
            "user.tool_confirmation": self._confirmation,
            "agent.message": self._agent_message,
            "agent.thinking": lambda _: self._progress("thinking"),
            "agent.tool_use": self._tool_use,
            "agent.mcp_tool_use": self._tool_use,
            "agent.custom_tool_use": self._tool_use,
            "agent.tool_result": self._tool_result,
            "agent.mcp_tool_result": self._tool_result,
            "user.tool_result": self._tool_result,
            "user.custom_tool_result": self._tool_result,
            "agent.thread_context_compacted": lambda _: self._line(
                "the conversation so far was summarised", "yellow"
            ),
            "session.error": self._error,
            "session.usage": lambda event: self._progress(usage_line(event.usage)),
            "session.status_idle": self._idle,
            "session.status_terminated": lambda _: self._line("session terminated", "bold"),
            "session.status_rescheduled": lambda _: self._line("trying again soon", "yellow"),
            "span.model_request_end": self._model_request_end,
            "event_start": self._preview_start,
            "event_delta": self._preview_delta,
        }

    def show(self, event: Event) -> None:
        """Prints an event. The same event again prints nothing."""
        identity = getattr(event, "id", None)
        if identity is not None:
            if identity in self._shown:
                return
            self._shown.add(identity)
        if identity is not None and identity != self._previewing:
            self._end_preview()
        show = self._show.get(event.type)
        if show is not None:
            show(event)
        elif self._every:
            self._progress(event.type)

    def _user_message(self, event: sdk.BetaManagedAgentsUserMessageEvent) -> None:
        self._line("you", "bold cyan")
        self._block(_text_of(event.content))

    def _system_message(self, event: beta.BetaManagedAgentsSystemMessageEvent) -> None:
        self._line("system", "bold cyan")
        self._block(_text_of(event.content))

    def _confirmation(self, event: sdk.BetaManagedAgentsUserToolConfirmationEvent) -> None:
        reason = f": {event.deny_message}" if event.deny_message else ""
        self._line(f"you  {event.result}{reason}", "bold cyan")
        if event.result == "allow":
            self._allowed.add(event.tool_use_id)

    def _agent_message(self, event: sdk.BetaManagedAgentsAgentMessageEvent) -> None:
        text = _text_of(event.content)
        if event.id == self._previewing:
            missing = text.removeprefix(self._previewed)
            self._write(missing if text.startswith(self._previewed) else f"\n{text}")
            self._end_preview()
            return
        left_id, previewed = self._left
        if event.id == left_id and text.startswith(previewed):
            text = text.removeprefix(previewed)
            if not text:
                return
        self._line("agent", "bold green")
        self._line(text)

    def _preview_start(self, event: beta.BetaManagedAgentsStartEvent) -> None:
        if event.event.type != "agent.message" or event.event.id in self._shown:
            return
        self._end_preview()
        self._previewing = event.event.id
        self._line("agent", "bold green")

    def _preview_delta(self, event: beta.BetaManagedAgentsDeltaEvent) -> None:
        if event.event_id == self._previewing and event.delta.content.type == "text":
            self._previewed += event.delta.content.text
            self._write(event.delta.content.text)

    def _end_preview(self) -> None:
        if self._previewing is not None:
            self._left = self._previewing, self._previewed
            self._console.print()
        self._previewing = None
        self._previewed = ""

    def _tool_use(self, event: ToolUse) -> None:
        self._tools[event.id] = event.name
        permission = getattr(event, "evaluated_permission", None) or ""
        if event.type == "agent.tool_use" and permission == "allow":
            self._allowed.add(event.id)
        self._line(f"tool  {event.name}{_PERMISSIONS.get(permission, '')}", "bold magenta")
        self._block(describe_input(event.name, event.input))

    def _tool_result(self, event: ToolResult) -> None:
        failed = bool(event.is_error)
        name = self._tools.get(answered_call(event), "tool")
        self._line(f"{name}  {'failed' if failed else 'gave'}", "red" if failed else "magenta")
        self._block(_text_of(event.content) or "(nothing)", style="red" if failed else "dim")

    def _error(self, event: sdk.BetaManagedAgentsSessionErrorEvent) -> None:
        error = event.error
        self._line(f"error  {error.type}: {error.message} ({error.retry_status.type})", "bold red")

    def _idle(self, event: sdk.BetaManagedAgentsSessionStatusIdleEvent) -> None:
        details = event.stop_details
        suffix = f": {details.explanation}" if details and details.explanation else ""
        reason = event.stop_reason
        if reason.type == "requires_action" and self._allowed.issuperset(reason.event_ids):
            suffix = ": waits for a worker of its environment"
        self._line(f"idle  {reason.type}{suffix}", "bold")

    def _model_request_end(self, event: sdk.BetaManagedAgentsSpanModelRequestEndEvent) -> None:
        usage = event.model_usage
        failed = "failed, " if event.is_error else ""
        self._progress(
            f"model request: {failed}{usage.input_tokens:,} tokens in, "
            f"{usage.cache_read_input_tokens:,} from cache, {usage.output_tokens:,} out"
        )

    def _progress(self, text: str) -> None:
        if self._every:
            self._line(text, "dim")

    def _line(self, text: str, style: str | None = None) -> None:
        verbatim(self._console, text, style)

    def _write(self, text: str) -> None:
        verbatim(self._console, text, end="")

    def _block(self, text: str, style: str | None = None) -> None:
        for line in shortened(plain(text)):
            verbatim(self._console, f"  │ {line}", style)


def shortened(text: str) -> list[str]:
    """The lines of a text, the middle of a long one left out."""
    lines = [
        line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}…" for line in text.splitlines()
    ]
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    if left_out <= 1:
        return lines
    return [*lines[:_HEAD_LINES], f"… {left_out} more lines …", *lines[-_TAIL_LINES:]]


def describe_input(name: str, given: Mapping[str, object]) -> str:
    """A tool's input as a person would write it."""
    command = given.get("command")
    if name == "bash" and isinstance(command, str):
        return f"$ {command}"
    lines = []
    for key, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{key}: {text}" if "\n" not in text else f"{key}:\n{text}")
    return "\n".join(lines)


def answered_call(event: ToolResult) -> str:
    """The id of the call that a result answers."""
    if event.type == "agent.mcp_tool_result":
        return event.mcp_tool_use_id
    if event.type == "user.custom_tool_result":
        return event.custom_tool_use_id
    return event.tool_use_id


def usage_line(usage: Usage) -> str:
    """A session's usage in one line."""
    parts = [
        f"{usage.input_tokens or 0:,} tokens in",
        f"{usage.cache_read_input_tokens or 0:,} from cache",
        f"{usage.output_tokens or 0:,} out",
    ]
    if usage.active_seconds is not None:
        parts.append(f"{usage.active_seconds:.1f} s active")
    if usage.list_cost is not None:
        cents = int(usage.list_cost.amount)
        parts.append(f"{cents / 100:.2f} {usage.list_cost.currency} at list price")
    return f"usage: {', '.join(parts)}"


def _text_of(content: Sequence[Any] | None) -> str:
    parts = []
    for block in content or ():
        if block.type == "text":
            parts.append(block.text)
        else:
            title = getattr(block, "title", None)
            parts.append(f"[{block.type}{f' {title}' if title else ''}]")
    return "\n".join(parts)
