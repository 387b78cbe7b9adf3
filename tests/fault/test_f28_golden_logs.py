"""F28: the logs of every release drive today's harness to the same next step, at every position.

Where a release decides otherwise on purpose, `tests/replay/differences.jsonl` says so: the log, the
position, the place in the step, what was decided then and is now, and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.transfer.exporting import export_session
from cli.transfer.importing import import_session
from tests.e2e.mcp_stack import McpStack
from tests.e2e.stack import Stack
from tests.replay import golden, scenarios
from tests.replay.golden import GoldenLog
from tests.replay.record import MCP, WEB, record, record_mcp, release, target

LOGS = golden.recorded()


def reviewed() -> dict[tuple[str, int, str], dict]:
    """The differences that were looked at and meant."""
    lines = golden.read_lines(golden.DIFFERENCES)
    assert all(line["why"].strip() for line in lines)
    return {(line["log"], line["seq"], line["place"]): line for line in lines}


@pytest.mark.parametrize("name", LOGS)
def test_harness_decides_as_recorded_behind_every_event(name: str) -> None:
    path = LOGS[name]
    meant = {key: line for key, line in reviewed().items() if key[0] == name}
    steps = golden.read_lines(golden.decisions_file(path))
    found = {}
    for was, now in zip(steps, GoldenLog.read(path).decisions(), strict=True):
        assert was["seq"] == now["seq"]
        for place, (then, today) in golden.differences(was, now).items():
            found[name, now["seq"], place] = {"was": then, "now": today}
    assert found == {key: {"was": it["was"], "now": it["now"]} for key, it in meant.items()}


def test_every_reviewed_difference_is_of_a_log_that_is_there() -> None:
    assert {log for log, _, _ in reviewed()} <= set(LOGS)


def test_this_release_has_a_log_of_every_scenario() -> None:
    names = {scenario.__name__ for scenario in scenarios.ALL} | {MCP, WEB}
    assert {f"{release()}/{name}" for name in names} <= set(LOGS)


@pytest.mark.parametrize("name", LOGS)
def test_session_comes_in_and_goes_out_again_byte_for_byte(
    stack: Stack, name: str, tmp_path: Path
) -> None:
    again = tmp_path / "again.jsonl"
    session_id = import_session(target(stack), LOGS[name])
    try:
        export_session(target(stack), session_id, again)
    finally:
        with stack.client() as client:
            client.beta.sessions.delete(session_id)
    assert again.read_bytes() == LOGS[name].read_bytes()


def test_positions_are_dense_and_no_log_is_cut_off() -> None:
    for path in LOGS.values():
        log = GoldenLog.read(path)
        assert [event.seq for event in log.events] == list(range(1, len(log.events) + 1))
        assert log.events[-1].WhichOneof("payload") in {
            "session_status_idle",
            "session_status_terminated",
        }


@pytest.mark.parametrize(
    "scenario",
    [scenarios.tool_turns, scenarios.confirmations, scenarios.custom_tools],
    ids=lambda scenario: scenario.__name__,
)
def test_stack_of_today_writes_the_golden_log_again(
    stack: Stack, scenario: scenarios.Scenario, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh.jsonl"
    record(stack, scenario, fresh)
    kept = LOGS[f"{release()}/{scenario.__name__}"]
    assert kinds(GoldenLog.read(fresh)) == kinds(GoldenLog.read(kept))


def test_stack_of_today_writes_the_log_of_mcp_servers_again(mcp: McpStack, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.jsonl"
    record_mcp(mcp, fresh)
    assert kinds(GoldenLog.read(fresh)) == kinds(GoldenLog.read(LOGS[f"{release()}/{MCP}"]))


def kinds(log: GoldenLog) -> list[str | None]:
    """What the events are; ids and times differ."""
    return [event.WhichOneof("payload") for event in log.events]
