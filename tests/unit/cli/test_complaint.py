"""What `drover up` says of a service that dies while the stack runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.stack.complaint import complaint
from cli.stack.installation import Installation
from cli.stack.plan import Plan
from cli.stack.service import Change, Stage
from cli.terminal import SteadyTerminal
from cli.up import StackDisplay

WHY = "DROVER_EGRESS_CA_FILE cannot be used: No such file or directory"


def line(event: str, **more: str) -> str:
    return json.dumps({"service": "vault_proxy", "event": event, **more}) + "\n"


def test_the_last_reason_in_a_log_is_found_among_other_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        line("cannot_start", reason="of before")
        + line("cannot_start", reason=WHY)
        + line("stopped")
        + "[1]\nno JSON {\n"
    )
    why, end = complaint(log, 0)
    assert (why, end) == (WHY, log.stat().st_size)
    assert complaint(log, end) == ("", end)
    with log.open("a") as file:
        file.write(line("failed", exception="Traceback\n  …\nValueError: odd"))
    assert complaint(log, end)[0] == "ValueError: odd"
    log.write_text(line("cannot_start", reason="anew"))  # it was cut
    assert complaint(log, end)[0] == "anew"
    assert complaint(tmp_path / "none", 7) == ("", 7)


def test_a_long_log_is_read_at_its_end_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(line("said") * 10_000 + line("cannot_start", reason=WHY))
    assert complaint(log, 0) == (WHY, log.stat().st_size)


def test_why_a_service_does_not_start_is_said_once_until_it_changes_or_it_was_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installation = Installation(tmp_path)
    installation.logs.mkdir()
    plan = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=range(2000, 2005))
    display = StackDisplay(
        plan, installation, "", "", SteadyTerminal(), SteadyTerminal(stderr=True), quiet=True
    )
    display.ready()
    log = installation.log_file("vault_proxy")

    def dies(reason: str) -> str:
        with log.open("a") as file:
            file.write(line("cannot_start", reason=reason))
        display.changed(Change("vault_proxy", Stage.DIED, detail="exited with code 1", failures=1))
        return " ".join(capsys.readouterr().err.split())

    again = "vault_proxy: exited with code 1; starting it again"
    first = dies(WHY)
    assert first.startswith(f"{again} {WHY} (its log is ")
    assert log.name in first
    assert dies(WHY) == again
    assert "another" in dies("another")
    display.changed(Change("vault_proxy", Stage.LISTENING))
    assert "another" in dies("another")
