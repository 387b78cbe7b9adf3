"""What an agent sees of the host: nothing but a read-only system (S1, S9, E1)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, run_turn
from tests.e2e.stack import Stack


@pytest.fixture
def bash(stack: Stack) -> Callable[[str], str]:
    """Runs a command as an agent would, through the whole stack."""

    def run(command: str) -> str:
        stack.model.script(tools(ToolUse("bash", {"command": command})), text("done"))
        with stack.client() as client:
            session = new_session(client)
            seen = run_turn(client, session.id, "go")
        result = next(event for event in seen if event.type == "agent.tool_result")
        return "".join(block.text for block in result.content)

    return run


def test_environment_holds_nothing_of_the_host(stack: Stack, bash: Callable[[str], str]) -> None:
    shown = bash("env; cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'")
    for name in ("ANTHROPIC", "DROVER", "OTEL", "VIRTUAL_ENV", "SSH"):
        assert name not in shown
    for secret in (stack.token, stack.key):
        assert secret not in shown


def test_no_process_of_the_host_is_seen(stack: Stack, bash: Callable[[str], str]) -> None:
    shown = bash("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done; ls /proc")
    assert "drover" not in shown
    assert stack.token not in shown
    numbers = [int(word) for word in shown.split() if word.isdigit()]
    assert len(numbers) < 20


@pytest.mark.parametrize("path", ["/root", "/home", "/srv", "/mnt", "/opt", "/var"])
def test_no_folder_of_the_host_is_seen(path: str, bash: Callable[[str], str]) -> None:
    shown = bash(f"find {path} -xdev -type f 2>/dev/null | grep -v '^/mnt/session' | head")
    assert "/" not in shown.replace("exit code", "")


def test_data_folder_is_not_there(stack: Stack, bash: Callable[[str], str]) -> None:
    shown = bash(f"ls {stack.data} 2>&1; ls {os.getcwd()} 2>&1; true")  # noqa: PTH109
    assert shown.count("No such file") == 2


def test_gateway_is_out_of_reach(stack: Stack, bash: Callable[[str], str]) -> None:
    port = stack.url.rsplit(":", 1)[1]
    shown = bash(
        f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&1 && echo reached; "
        f"curl -sS -m 3 http://127.0.0.1:{port}/healthz 2>&1; ls /sys/class/net 2>/dev/null; true"
    )
    assert "reached" not in shown
    assert "ok" not in shown.lower().split()
    assert "eth0" not in shown


def test_system_is_read_only(bash: Callable[[str], str]) -> None:
    shown = bash("touch /usr/x /etc/x /bin/x 2>&1; echo; id -u; mount -t tmpfs x /usr 2>&1; true")
    assert shown.count("Read-only file system") + shown.count("Permission denied") >= 3
